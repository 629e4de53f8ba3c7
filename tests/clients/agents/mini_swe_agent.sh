# mini-swe-agent mends a program in a folder of its own; the arguments are one of its configurations and more flags.
export OPENAI_BASE_URL=$RELAX_BASE_URL OPENAI_API_KEY=$RELAX_SESSION_ID HOME=$RELAX_SESSION_IO_DIR
export MSWEA_CONFIGURED=true MSWEA_COST_TRACKING=ignore_errors LITELLM_LOCAL_MODEL_COST_MAP=True
mkdir "$HOME/work" && cd "$HOME/work" || exit 1
printf 'def add(a, b):\n    return a - b\n' > adder.py
task=$(python3 -c 'import json, os; print(json.load(open(os.environ["RELAX_INPUT_JSON"]))["messages"][-1]["content"])')

mini -c "$@" -c model.model_kwargs.timeout=9999 -m openai/policy -t "$task" -y --exit-immediately \
  -o "$HOME/trajectory.json" || exit

sum=$(python3 -c 'import adder; print(float(adder.add(2, 3) == 5))')
echo "{\"reward\": ${sum:-0.0}}" > "$RELAX_OUTPUT_JSON"
