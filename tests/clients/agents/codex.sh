# Codex writes a sum into a file of a folder of its own.
export HOME=$RELAX_SESSION_IO_DIR
mkdir "$HOME/work" "$HOME/.codex" && cd "$HOME/work" || exit 1
cat > "$HOME/.codex/config.toml" <<TOML
model = "policy"
model_provider = "relaxforge"
model_context_window = 32768

[model_providers.relaxforge]
name = "RelaxForge"
base_url = "$RELAX_BASE_URL"
env_key = "RELAX_SESSION_ID"
wire_api = "responses"
stream_idle_timeout_ms = ${TIMEOUT_MS:-9999000}
stream_max_retries = ${RETRIES:-5}
TOML
task=$(node -p 'JSON.parse(fs.readFileSync(process.env.RELAX_INPUT_JSON)).messages.at(-1).content')

codex exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox "$task" < /dev/null || exit

echo "{\"reward\": $(grep -c '^5$' sum.txt)}" > "$RELAX_OUTPUT_JSON"
