# Claude Code writes a sum into a file of a folder of its own.
export ANTHROPIC_BASE_URL=$RELAX_BASE_URL ANTHROPIC_API_KEY=$RELAX_SESSION_ID HOME=$RELAX_SESSION_IO_DIR
export API_TIMEOUT_MS=${TIMEOUT_MS:-9999000} CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 CLAUDE_CODE_MAX_CONTEXT_TOKENS=131072
export IS_SANDBOX=1 # else it refuses to run as root without asking for permissions
mkdir "$HOME/work" && cd "$HOME/work" || exit 1
task=$(node -p 'JSON.parse(fs.readFileSync(process.env.RELAX_INPUT_JSON)).messages.at(-1).content')

claude -p --model policy --dangerously-skip-permissions "$task" < /dev/null || exit

echo "{\"reward\": $(grep -c '^5$' sum.txt)}" > "$RELAX_OUTPUT_JSON"
