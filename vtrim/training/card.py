"""The model card of a draft: where it comes from, what it measured, how to serve it."""

from __future__ import annotations

from typing import Any

_CARD = """\
---
base_model: {target}
library_name: vtrim
license: {licence}
tags: [speculative-decoding, eagle3, vtrim]
---
# EAGLE-3 draft for {target}

An EAGLE-3 draft head with a vocabulary of {k:,} of the target's {V:,} tokens, trained by vtrim
{version}. It is not a model of its own: it proposes tokens that {target} verifies.

| | |
|---|---|
| target | `{target}` (config {target_config_fingerprint}) |
| draft vocabulary | {k:,} tokens ({vocab_fingerprint}) |
| coverage of the counted replies | {coverage} |
| training data | {rows:,} conversations, {data_fingerprint} |
| steps / reply tokens seen | {steps:,} / {tokens:,} |
| held-out joint prefix ({ttt_steps} steps, training-side estimate) | {joint_prefix} |
| auxiliary states (hidden_states indices) | {aux} |

Licence: that of the base model unless its makers say otherwise. The draft reads the target's own
embedding; {start}.

## Serve

```
vllm serve {target} --speculative-config \\
  '{{"method":"eagle3","model":"PATH_TO_THIS_FOLDER","num_speculative_tokens":3}}'
python -m sglang.launch_server --model-path {target} --speculative-algorithm EAGLE3 \\
  --speculative-draft-model-path PATH_TO_THIS_FOLDER --speculative-num-steps 3 \\
  --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --dtype bfloat16
```
{aux_note}"""

_AUX_NOTE = """
This target is shallow or its auxiliary layers were chosen by hand, so `config.json` names them in
both engines' conventions; TensorRT-LLM needs `eagle3_layers_to_capture: {blocks}` in its YAML.
"""


_FRESH = "its head started from the target's rows unless the settings in config.json say otherwise"
_START = (
    "training went on from the draft `{draft}` ({layout} layout,\n{k:,} tokens, {fingerprint}):"
    " {kept:,} rows of its head kept, {dropped:,}\ncut, {added:,} made from the target's"
)


def model_card(facts: dict[str, Any]) -> str:
    """Markdown with a front matter that model hubs read."""
    low, mid, high = facts["aux"]
    note = _AUX_NOTE.format(blocks=[low - 1, mid - 1, high - 1]) if facts["custom_aux"] else ""
    earlier = facts.get("init_from")
    return _CARD.format(
        **facts, aux_note=note, start=_FRESH if earlier is None else _START.format(**earlier)
    )
