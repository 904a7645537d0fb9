"""Each trap of a draft folder, built, and what the check says that each engine makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from vtrim.errors import InputError
from vtrim.models.exporting import Verifier, export_draft
from vtrim.models.importing import HEAD, import_draft
from vtrim.models.serving.check import check_folder, own_verdict
from vtrim.models.serving.folder import Served

Foreign = Callable[..., Path]
IDS = [2, 3, 5, 8, 9, 10, 11, 13, 14, 17, 20, 21, 22, 23, 24]
KEY = "eagle_aux_hidden_state_layer_ids"
ROW = torch.ones(32).bfloat16()
LETTERS = {"v": "vLLM", "s": "SGLang", "t": "TensorRT-LLM", "e": "EAGLE"}
VERDICTS = {"+": "loads", "!": "silently differs", "x": "refuses"}


def target(**changes: Any) -> Served:
    """A target the tiny drafts fit: 8 layers, V 32, d 32."""
    ranks = {k: changes.pop(k) for k in list(changes) if k.endswith("_parallel")}
    config = {
        "model_type": "llama",
        "vocab_size": 32,
        "hidden_size": 32,
        "num_hidden_layers": 8,
        "max_position_embeddings": 128,
        "dtype": "bfloat16",
    }
    return Served(config=config | changes, folder=changes.pop("folder", None), **ranks)


def verdicts(found: dict[str, Any]) -> str:
    """E.g. "v+ s! t+ ex"."""
    signs = {verdict: sign for sign, verdict in VERDICTS.items()}
    return " ".join(letter + signs[found[engine]["verdict"]] for letter, engine in LETTERS.items())


def reasons(found: dict[str, Any]) -> str:
    return " | ".join(f["what"] for part in found.values() for f in part["findings"])


def test_the_plain_draft_of_every_trainer_and_what_becomes_of_it(foreign: Foreign) -> None:
    expected = {
        "SpecForge": "v+ s+ t+ e+",
        "EAGLE": "v+ s! t+ e+",  # a plain Llama by name
        "AngelSlim": "v+ sx t+ e+",  # a class of its own
        "ModelOpt": "v! s+ t+ e!",  # blocks taken for hidden_states, layers.0
        "speculators": "v+ sx tx ex",
    }
    for layout, verdict in expected.items():
        config = {"torch_dtype": "bfloat16"}
        if layout == "speculators":
            config["speculators_config"] = {  # type: ignore[assignment]
                "proposal_methods": [{"speculative_tokens": 3}],
                "verifier": {"name_or_path": "org/target"},
            }
        found = check_folder(foreign(layout, config=config), target())
        assert verdicts(found) == verdict, (layout, reasons(found))


H = torch.zeros(32, 32).bfloat16()
FULL = {"d2t": None, "t2d": None, HEAD: H}
LONG = torch.tensor(IDS)  # absolute
SMALL = torch.arange(15)  # absolute 0..14 read as offsets: 0, 2, .. 28 < 32


# (name of the trap, tensors, config, target's changes, verdicts, a word of the reason)
TRAPS: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], str, str]] = [
    # section 2: keys of config.json
    ("plain", {}, {}, {}, "v+ s+ t+ e+", ""),
    ("class of a plain Llama", {}, {"architectures": ["LlamaForCausalLM"]}, {},
     "v+ s! t+ e+", "a plain Llama is run as the draft"),
    ("class of AngelSlim", {}, {"architectures": ["Eagle3LlamaForCausalLM"]}, {},
     "v+ sx t+ e+", "one class is registered"),
    ("unknown class", {}, {"architectures": ["Foo"]}, {}, "vx sx t+ e+", "no class of that name"),
    ("no model_type", {}, {"model_type": None}, {}, "vx sx tx e+", "no model_type"),
    ("no draft_vocab_size", {}, {"draft_vocab_size": None}, {}, "vx sx tx ex", "AttributeError"),
    ("draft_vocab_size of another head", {}, {"draft_vocab_size": 16}, {},
     "vx sx tx ex", "does not fit 15 head rows"),
    ("vocab_size of another target", {}, {"vocab_size": 40}, {}, "vx s! t! ex", "vocab_size is 40"),
    ("target_hidden_size equal", {}, {"target_hidden_size": 32}, {},
     "v+ s+ t+ e!", "the target's embedding is not loaded"),
    ("wider target without embedding", {}, {"target_hidden_size": 64}, {"hidden_size": 64},
     "vx sx tx ex", "needs an embedding of its own"),
    ("another target's width", {}, {}, {"hidden_size": 64}, "vx sx tx ex", "states are 64 wide"),
    ("no width", {}, {"hidden_size": None}, {}, "vx sx tx ex", "config.json means [4096, 12288]"),
    ("states of a narrower target", {"fc.weight": torch.zeros(32, 64).bfloat16()}, {}, {},
     "vx sx tx ex", "fc.weight is [32, 64], config.json means [32, 96]"),
    ("numbers that are none", {"norm.weight": ROW * torch.nan}, {}, {},
     "v! s! t! e!", "norm.weight holds numbers that are not finite"),
    ("head_dim of its own", {}, {"head_dim": 16}, {}, "v+ s+ t+ ex", "takes hidden_size // heads"),
    ("base nested only", {}, {"rope_theta": None, "rope_parameters": {"rope_theta": 5e5}}, {},
     "v+ s+ t+ e!", "at the top level only"),
    ("no base", {}, {"rope_theta": None}, {}, "v+ s+ t+ e+", "10,000 is taken"),
    ("llama3 scaling", {}, {"rope_scaling": {"rope_type": "llama3", "factor": 8}}, {},
     "v+ s+ t+ ex", "KeyError"),
    ("linear scaling", {}, {"rope_scaling": {"type": "linear", "factor": 2}}, {},
     "v+ s+ t+ e+", ""),
    ("short positions", {}, {"max_position_embeddings": 64}, {},
     "v+ sx t! e+", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"),
    ("tied", {}, {"tie_word_embeddings": True}, {}, "v+ s! t+ e+", "the embedding replaces"),
    ("no dtype", {}, {"torch_dtype": None}, {}, "v+ s+ tx e+", "needs torch_dtype"),
    ("fp16 under bf16", {}, {"torch_dtype": "float16"}, {}, "v+ s+ t+ e+", "--dtype auto keeps"),
    ("quantised draft", {}, {"quantization_config": {"bits": 4}}, {},
     "v+ s+ t+ ex", "no quantised draft"),
    ("quantised target", {}, {}, {"quantization_config": {"bits": 4}},
     "v+ s+ t+ e+", "hands its scheme to the draft"),
    ("padding outside", {}, {"pad_token_id": 32}, {}, "v+ s+ t+ ex", "outside the vocabulary"),
    ("biases unset", {"midlayer.self_attn.q_proj.bias": ROW}, {}, {},
     "vx s! t! e!", "attention_bias is not set"),
    ("biases set", {"midlayer.self_attn.q_proj.bias": ROW}, {"attention_bias": True}, {},
     "v+ s! t+ e!", "biases of q, k and v are left out"),
    ("bias of fc unset", {"fc.bias": ROW}, {}, {}, "vx s! t! e!", "'bias' is not set"),
    ("bias of fc set", {"fc.bias": ROW}, {"bias": True}, {}, "vx s+ t+ e!", "fc has a bias"),
    ("biases of the MLP", {"midlayer.mlp.up_proj.bias": ROW}, {"mlp_bias": True}, {},
     "v+ s! t+ e!", "biases of the MLP"),
    # section 3: states and variants
    ("blocks in eagle_config only", {}, {"eagle_config": {KEY: [0, 3, 6]}}, {},
     "v! s+ t! e!", "takes the blocks in eagle_config for hidden_states"),
    ("the default as blocks", {}, {"eagle_config": {KEY: [1, 3, 4]}}, {},
     "v! s+ t+ e+", "reads [1, 3, 4], not [2, 4, 5]"),
    ("indices at the top only", {}, {KEY: [1, 4, 7]}, {},
     "v+ s! t! e!", "reads [2, 4, 5], the draft is made for [1, 4, 7]"),
    ("both, one convention each", {}, {KEY: [1, 4, 7], "eagle_config": {KEY: [0, 3, 6]}}, {},
     "v+ s+ t! e!", "eagle3_layers_to_capture: [0, 3, 6]"),
    ("both, one off", {}, {KEY: [1, 4, 6], "eagle_config": {KEY: [1, 4, 6]}}, {},
     "v+ s! t! e!", "reads [2, 5, 7], the draft is made for [1, 4, 6]"),
    ("deepseek counts from the boundary", {}, {KEY: [3, 4, 7], "eagle_config": {KEY: [2, 3, 6]}},
     {"model_type": "deepseek_v3"}, "v+ s! t! ex", "reads [2, 3, 6], the draft is made for"),
    ("deepseek with first id 1", {}, {KEY: [2, 4, 7], "eagle_config": {KEY: [1, 3, 6]}},
     {"model_type": "deepseek_v3"}, "v+ s+ t! ex", "not of deepseek_v3"),
    ("gpt_oss with the last boundary", {}, {KEY: [4, 6, 8], "eagle_config": {KEY: [4, 6, 8]}},
     {"model_type": "gpt_oss"}, "v+ s+ t! ex", "not of gpt_oss"),
    ("layer_ids of the second runner", {}, {"eagle_config": {"layer_ids": [1, 4, 7]}}, {},
     "v! s+ t+ e+", "read by its second runner only"),
    ("two equal states", {}, {KEY: [2, 2, 5], "eagle_config": {KEY: [1, 1, 4]}}, {},
     "vx sx t! e!", "2 states for an fc of 3"),
    ("unsorted", {}, {KEY: [5, 2, 4], "eagle_config": {KEY: [4, 1, 3]}}, {},
     "v+ s+ t+ e+", "read in the order of the layers"),
    ("the state after the last block", {}, {KEY: [2, 4, 8], "eagle_config": {KEY: [1, 3, 7]}}, {},
     "v+ sx t! e!", "the target has 8 layers"),
    ("minus one", {}, {KEY: [2, 4, -1], "eagle_config": {KEY: [1, 3, -1]}}, {},
     "vx s! t+ e+", "only TensorRT-LLM's YAML knows -1"),
    ("beyond the target", {}, {KEY: [2, 4, 9], "eagle_config": {KEY: [1, 3, 8]}}, {},
     "vx sx t! e!", "the target has 8 layers"),
    ("six layers, default", {}, {}, {"num_hidden_layers": 6}, "vx sx t! ex", "coincide"),
    ("five layers, default", {}, {}, {"num_hidden_layers": 5}, "vx sx tx ex", "has no default"),
    ("target EAGLE cannot capture", {}, {}, {"model_type": "qwen2"},
     "v+ s+ t+ ex", "not of qwen2"),
    ("several layers", {"layers.1.mlp.up_proj.weight": H}, {"num_hidden_layers": 2}, {},
     "v! s! t! e!", "in their own way"),
    ("norm before residual", {}, {"norm_before_residual": True}, {},
     "v+ s! t! e!", "norm_before_residual is not read"),
    ("norm_before_fc on top", {"input_norm.weight": torch.ones(96)}, {"norm_before_fc": True}, {},
     "v+ s+ t! e!", "inside eagle_config only"),
    ("norm_before_fc inside", {"input_norm.weight": torch.ones(96)},
     {"eagle_config": {"norm_before_fc": True}}, {}, "v+ s+ t+ e!", "norm_before_fc is not read"),
    ("input_norm without its flag", {"input_norm.weight": torch.ones(96)}, {}, {},
     "v! s! t! e!", "input_norm is left out"),
    ("fc_norm", {"fc_norm.0.weight": ROW}, {"fc_norm": True}, {}, "v+ s+ t+ e!", "fc_norm is not"),
    ("fc_norm without its flag", {"fc_norm.0.weight": ROW}, {}, {}, "vx s! t! e!", "is not set"),
    ("norm_output", {}, {"norm_output": True}, {}, "v+ s+ t+ e!", "feeds the un-normed state"),
    ("return_hidden_post_norm", {}, {"eagle_config": {"return_hidden_post_norm": True}}, {},
     "v! s! t+ e!", "write norm_output too"),
    ("without states", {"fc.weight": None}, {"eagle_config": {"use_aux_hidden_state": False}}, {},
     "v! s! tx ex", ""),
    ("another number of states", {"fc.weight": torch.zeros(32, 128).bfloat16()},
     {"num_aux_hidden_states": 4}, {}, "v+ s+ tx ex", "reads 3"),
    ("parallel drafting", {"mask_hidden": ROW}, {}, {}, "v! s! t! e!", "P-EAGLE"),
    ("Qwen3 draft in a Llama class", {"midlayer.self_attn.q_norm.weight": ROW}, {}, {},
     "vx s! t! e!", "q_norm belongs to"),
    ("Qwen3 draft", {"midlayer.self_attn.q_norm.weight": ROW},
     {"architectures": ["Eagle3Qwen3ForCausalLM"]}, {}, "v+ sx t! e!", ""),
    ("eh_proj", {"eh_proj.weight": H}, {"eagle_config": {"eh_proj_before_attn": True}}, {},
     "vx s! t+ e!", "eh_proj is left out"),
    # section 7, and 1.2: the mapping, the head, the names
    ("absolute ids beyond V", {"d2t": LONG}, {}, {}, "vx s! t! ex", "IndexError"),
    ("absolute ids within V", {"d2t": SMALL, "t2d": torch.arange(32) < 15}, {}, {},
     "v! s! t! e!", "other tokens are proposed"),
    ("no mapping", {"d2t": None, "t2d": None}, {}, {}, "v! s! t! e!", "draft ids are taken"),
    ("whole vocabulary", FULL, {"draft_vocab_size": 32}, {}, "v+ s+ t+ e+", ""),
    ("whole vocabulary with zeros in d2t", {**FULL, "d2t": torch.zeros(32, dtype=torch.int64)},
     {"draft_vocab_size": 32}, {}, "vx s+ t+ e+", "though every row is kept"),
    ("short d2t", {"d2t": torch.arange(14), "t2d": None}, {}, {},
     "vx s! tx ex", "d2t has 14 entries, the head 15 rows"),
    ("t2d missing", {"t2d": None}, {}, {}, "v+ s+ t+ e+", ""),
    ("t2d of another length", {"t2d": torch.arange(40) < 0}, {"vocab_size": 32}, {},
     "v! s! t! ex", "t2d has 40 entries"),
    ("no head", {HEAD: None}, {}, {}, "v! s! tx e!", "a random head runs"),
    ("no head and none declared", {**FULL, HEAD: None}, {"draft_vocab_size": 32}, {},
     "v+ s! t+ e!", "the target's serves"),
    ("embedding not finite", {"embed_tokens.weight": H + torch.nan}, {}, {},
     "v! s+ t+ e!", "is not the target's"),
    ("embedding, target not here", {"embed_tokens.weight": H}, {}, {},
     "v+ s+ t+ e+", "whatever it holds"),
    ("ranks that share no heads", {}, {}, {"tensor_parallel": 4}, "vx sx tx e+", "2 key/value"),
    ("ranks that pad", {}, {}, {"tensor_parallel": 2}, "v+ s+ t+ e+", "are padded for 2 ranks"),
    ("stages", {}, {}, {"pipeline_parallel": 2}, "vx s+ t+ e+", "pipeline stages"),
    ("missing tensor", {"midlayer.hidden_norm.weight": None}, {}, {},
     "v! s! tx e!", "runs as it was before loading"),
    ("unknown tensor", {"extra.weight": ROW}, {}, {}, "vx s! t+ e!", "names it and stops"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("tensors", "config", "served", "expected", "reason"),
    [pytest.param(*trap[1:], id=trap[0]) for trap in TRAPS],
)
def test_each_trap_is_told_for_each_engine(
    foreign: Foreign,
    tensors: dict[str, Any],
    config: dict[str, Any],
    served: dict[str, Any],
    expected: str,
    reason: str,
) -> None:
    folder = foreign("SpecForge", tensors, {"torch_dtype": "bfloat16", **config})
    found = check_folder(folder, target(**served))
    assert verdicts(found) == expected, reasons(found)
    assert reason in json.dumps(found, ensure_ascii=False)


def test_a_null_draft_vocab_size_hands_sglang_the_target_s_head(foreign: Foreign) -> None:
    folder = foreign("SpecForge", config={"torch_dtype": "bfloat16"})
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "draft_vocab_size": None}))
    found = check_folder(folder, target())
    assert verdicts(found) == "vx s! tx ex"
    assert "the target's head serves, not this one" in reasons(found)


def test_layers_0_is_a_random_layer_for_eagle_and_model_a_stop_for_vllm(
    foreign: Foreign,
) -> None:
    folder = foreign("SpecForge", config={"torch_dtype": "bfloat16"})
    path = folder / "model.safetensors"
    state = load_file(path)
    save_file({k.replace("midlayer.", "layers.0."): v for k, v in state.items()}, path)
    found = check_folder(folder, target())
    assert verdicts(found) == "v+ s+ t+ e!"
    assert "runs a random one" in reasons(found)
    save_file({f"model.{k}" if k != HEAD else k: v for k, v in state.items()}, path)
    assert verdicts(check_folder(folder, target())) == "vx s+ t! e!"


def test_two_files_of_weights_are_told_and_so_is_one_in_shards(foreign: Foreign) -> None:
    folder = foreign("SpecForge", config={"torch_dtype": "bfloat16"})
    path = folder / "model.safetensors"
    state = load_file(path)
    torch.save(state, folder / "pytorch_model.bin")
    found = check_folder(folder, target())
    assert verdicts(found) == "v+ s+ t+ e!"
    assert "reads pytorch_model.bin" in reasons(found)
    (folder / "pytorch_model.bin").unlink()
    save_file(state, folder / "older.safetensors")
    found = check_folder(folder, target())
    assert verdicts(found) == "v! s! t+ e+"
    assert "reads every .safetensors of the folder, older.safetensors too" in reasons(found)
    (folder / "older.safetensors").unlink()
    path.rename(folder / "model-1.safetensors")
    index = {"weight_map": dict.fromkeys(state, "model-1.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    found = check_folder(folder, target())
    assert verdicts(found) == "v+ s+ t+ ex"
    assert "looks for one pytorch_model.bin" in reasons(found)


def test_the_draft_s_embedding_is_held_against_the_target_s(
    foreign: Foreign, tmp_path: Path
) -> None:
    rows = torch.randn(32, 32).bfloat16()
    here = tmp_path / "target"
    here.mkdir()
    save_file({"model.embed_tokens.weight": rows}, here / "model.safetensors")
    (here / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"model.embed_tokens.weight": "model.safetensors"}})
    )
    config = {"torch_dtype": "bfloat16"}
    folder = foreign("SpecForge", {"embed_tokens.weight": rows}, config)
    served = Served(config=target().config, folder=here)
    assert verdicts(check_folder(folder, served)) == "v+ s+ t+ e+"
    save_file({"model.embed_tokens.weight": rows + 1}, here / "model.safetensors")
    found = check_folder(folder, served)
    assert verdicts(found) == "v! s+ t+ e!"
    assert "embed_tokens is not the target's, and is used instead of it" in reasons(found)


def test_eagle_finds_no_embedding_of_a_target_in_one_file(
    foreign: Foreign, tiny_target: Path
) -> None:
    folder = foreign("SpecForge", config={"torch_dtype": "bfloat16"})
    found = check_folder(folder, Served(config=target().config, folder=tiny_target))
    assert verdicts(found) == "v+ s+ t+ ex"
    assert "this target is one file" in reasons(found)


@pytest.mark.parametrize(
    ("config", "expected", "reason"),
    [
        ({}, "v+ sx tx ex", "cannot read the config of speculators"),
        ({"norm_before_residual": None}, "v! sx tx ex", "vLLM takes true, speculators false"),
        ({"speculators_model_type": None}, "vx sx tx ex", "speculators_model_type is None"),
        ({"model_type": "speculators"}, "v+ sx tx ex", "stands at the top level"),
        ({"transformer_layer_config": {"model_type": "gpt2"}}, "vx sx tx ex", "'gpt2'"),
        ({"speculators_config": {}}, "vx sx tx ex", "proposal_methods.0.speculative_tokens is"),
        ({"speculators_config": {"proposal_methods": [{"speculative_tokens": 3}]}},
         "vx sx tx ex", "verifier.name_or_path is missing"),
    ],
)  # fmt: skip
def test_what_vllm_needs_of_a_speculators_config_is_told(
    own_draft: Path, tmp_path: Path, config: dict[str, Any], expected: str, reason: str
) -> None:
    folder = tmp_path / "draft-eagle3"
    export_draft(import_draft(own_draft), "speculators", Verifier("org/t")).write(folder, "card")
    path = folder / "config.json"
    whole = {**json.loads(path.read_text()), **config}
    path.write_text(json.dumps({k: v for k, v in whole.items() if v is not None}))
    found = check_folder(folder, target())
    assert verdicts(found) == expected, reasons(found)
    assert reason in reasons(found)


def test_the_base_that_a_trainer_ignores_is_a_note_for_every_engine(foreign: Foreign) -> None:
    folder = foreign("AngelSlim", config={"rope_theta": 1e6, "torch_dtype": "bfloat16"})
    found = check_folder(folder, target())
    for part in found.values():
        assert "takes 10,000 whatever the config says" in json.dumps(part)


def test_states_of_an_unknown_target_are_a_note(foreign: Foreign) -> None:
    folder = foreign("SpecForge", config={KEY: [1, 4, 7], "torch_dtype": "bfloat16"})
    found = check_folder(folder)
    assert verdicts(found) == "v+ s+ t+ e+"
    assert "reads its default" in reasons(found)


NAMES = (
    "head_dim", "num_hidden_layers", "vocab_size", "draft_vocab_size", "rope_theta", "pad_token_id",
    "rope_scaling", "rope_parameters", "torch_dtype", KEY, "eagle_config", "target_hidden_size",
    "num_aux_hidden_states", "transformer_layer_config", "speculators_config", "hidden_size",
)  # fmt: skip
ODD: tuple[Any, ...] = (-1, 2.5, "x", [], ["a"], [[1]], {}, {KEY: "x"}, {"rope_theta": "x"}, 10**40)


@pytest.mark.parametrize("name", NAMES)
def test_a_config_of_odd_types_is_judged_or_refused_and_never_a_crash(
    foreign: Foreign, name: str
) -> None:
    folder = foreign("SpecForge")
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for value in ODD:
        path.write_text(json.dumps({**config, name: value}))
        for served in (None, target()):
            try:
                found = check_folder(folder, served)
            except InputError:
                continue
            assert set(found) == set(LETTERS.values())


def test_what_vtrim_itself_makes_of_a_folder_is_told(foreign: Foreign) -> None:
    assert own_verdict(foreign("ModelOpt"), None)["verdict"] == "loads"
    refused = own_verdict(foreign("SpecForge", config={"norm_output": True}), None)
    assert refused["verdict"] == "refuses"
    assert "EAGLE-3.1" in refused["findings"][0]["what"]


def test_a_folder_without_weights_cannot_be_judged(foreign: Foreign, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such draft folder"):
        check_folder(tmp_path / "nothing")
    folder = foreign("SpecForge")
    (folder / "model.safetensors").write_bytes(b"cut")
    with pytest.raises(InputError, match="incomplete"):
        check_folder(folder)
