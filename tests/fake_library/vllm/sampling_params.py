"""The part of vLLM's module that the worker uses."""

from __future__ import annotations

from enum import Enum


class RequestOutputKind(Enum):
    DELTA = 1
