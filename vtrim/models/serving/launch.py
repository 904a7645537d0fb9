"""The command lines that serve a target with a draft, one for each engine."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

from vtrim.models.exporting import trt_yaml
from vtrim.models.serving.finding import EAGLE, SGLANG, TRT, VLLM


@dataclass(frozen=True, kw_only=True)
class Launch:
    """What the commands say.

    folder, target: as engines find them. num_draft_tokens: a chain of so many. dtype: of the
    draft's weights. blocks: layers whose output the draft reads, None for the engines' default.
    starts_target: whether the folder's config names the target (speculators).
    """

    folder: str
    target: str
    num_draft_tokens: int
    dtype: str
    blocks: list[int] | None
    starts_target: bool


def commands(launch: Launch) -> dict[str, str]:
    """Engine -> its commands, ready for a shell."""
    return {
        VLLM: _vllm(launch),
        SGLANG: _sglang(launch),
        TRT: _trtllm(launch),
        EAGLE: _eagle(launch),
    }


def _vllm(launch: Launch) -> str:
    if launch.starts_target:
        return _line(["vllm", "serve", launch.folder])
    speculative = {
        "method": "eagle3",
        "model": launch.folder,
        "num_speculative_tokens": launch.num_draft_tokens,
        "draft_tensor_parallel_size": 1,
    }
    return _line(
        ["vllm", "serve", launch.target],
        ["--speculative-config", json.dumps(speculative, ensure_ascii=False)],
    )


def _sglang(launch: Launch) -> str:
    """A chain (topk 1), which every attention backend runs; the root counts as a draft token."""
    return _line(
        ["python", "-m", "sglang.launch_server", "--model-path", launch.target],
        ["--speculative-algorithm", "EAGLE3"],
        ["--speculative-draft-model-path", launch.folder],
        ["--speculative-num-steps", str(launch.num_draft_tokens)],
        ["--speculative-eagle-topk", "1"],
        ["--speculative-num-draft-tokens", str(launch.num_draft_tokens + 1)],
        ["--dtype", launch.dtype],
    )


def _trtllm(launch: Launch) -> str:
    text = trt_yaml(json.dumps(launch.folder), launch.blocks, launch.num_draft_tokens)
    serve = _line(["trtllm-serve", launch.target, "--config", "trtllm.yaml"])
    return f"cat > trtllm.yaml <<'END'\n{text}END\n{serve}"


def _eagle(launch: Launch) -> str:
    """A tree of 60 nodes, EAGLE's own default for its evaluation."""
    return _line(
        ["python", "-m", "eagle.evaluation.gen_ea_answer_llama3chat"],
        ["--base-model-path", launch.target],
        ["--ea-model-path", launch.folder],
        ["--bench-name", "mt_bench", "--temperature", "0"],
        ["--total-token", "60", "--depth", "5", "--top-k", "10"],
    )


def _line(*parts: list[str]) -> str:
    return " \\\n  ".join(shlex.join(part) for part in parts)
