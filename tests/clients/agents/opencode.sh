# OpenCode writes a sum into a file of a folder of its own.
export HOME=$RELAX_SESSION_IO_DIR
export OPENCODE_DISABLE_MODELS_FETCH=1 OPENCODE_DISABLE_AUTOUPDATE=1 OPENCODE_DISABLE_LSP_DOWNLOAD=1
mkdir "$HOME/work" && cd "$HOME/work" || exit 1
cat > opencode.json <<JSON
{
  "model": "relaxforge/policy",
  "small_model": "relaxforge/policy",
  "agent": {"title": {"disable": true}},
  "provider": {
    "relaxforge": {
      "npm": "@ai-sdk/openai-compatible",
      "options": {"baseURL": "{env:RELAX_BASE_URL}", "apiKey": "{env:RELAX_SESSION_ID}", "timeout": ${TIMEOUT_MS:-false}},
      "models": {"policy": {"limit": {"context": 32768, "output": 1024}}}
    }
  }
}
JSON
task=$(node -p 'JSON.parse(fs.readFileSync(process.env.RELAX_INPUT_JSON)).messages.at(-1).content')

opencode run "$task" < /dev/null || exit

echo "{\"reward\": $(grep -c '^5$' sum.txt)}" > "$RELAX_OUTPUT_JSON"
