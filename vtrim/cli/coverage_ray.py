"""Parts counted by the workers of a Ray cluster, through Ray Data."""

from __future__ import annotations

import logging
import os
import pickle
import socket
import traceback
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vtrim.errors import InputError, OptionError

if TYPE_CHECKING:
    from vtrim.cli.coverage_part import Part, PartSpec, Tell

_PATIENCE = 10  # seconds for a cluster to answer


def start_ray(num_cpus: int | None) -> int:
    """Joins the cluster of $RAY_ADDRESS, else starts one here; the number of its CPUs.

    Raises:
        OptionError: ray is not installed. InputError: the cluster does not answer.
    """
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise OptionError(
            f"--engine ray: ray is not installed ({error}). pip install 'vtrim[ray]'."
        ) from error
    address = os.environ.get("RAY_ADDRESS") or "local"
    own = address == "local"
    _check_reachable(address)
    try:
        if not ray.is_initialized():
            ray.init(
                address,
                num_cpus=num_cpus if own else None,
                include_dashboard=False if own else None,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InputError(f"ray at {address}: {str(error).splitlines()[0]}") from error
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return max(1, int(resources.get("CPU", 1)))


def _check_reachable(address: str) -> None:
    """Asks whether anything listens there: ray itself tries for minutes.

    Raises:
        InputError: nothing does.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal()):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except OSError as error:
        raise InputError(
            f"ray at {address} (RAY_ADDRESS): nothing answers ({error}). Start the cluster, or "
            "unset RAY_ADDRESS to start one here."
        ) from error


def count_by_ray(specs: Sequence[PartSpec], tell: Tell) -> Iterator[Part]:
    """Each part as it is done, in no order.

    Raises:
        InputError: a worker died. Whatever ``count_part`` raised in one of them.
    """
    import ray.data
    from ray.exceptions import RayError

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    sizes = [sum(source.size for source in spec.sources) for spec in specs]
    units = [{"unit": i, "spec": pickle.dumps(spec)} for i, spec in enumerate(specs)]
    counted = ray.data.from_items(units, override_num_blocks=len(units)).map(_count)
    try:
        for row in counted.iter_rows():
            value = pickle.loads(row["value"])  # noqa: S301 - from our own worker
            if isinstance(value, Exception):
                raise value
            if isinstance(value, str):
                raise RuntimeError(f"in a Ray worker:\n{value}")
            tell(sizes[row["unit"]], value.coverage.rows_used)
            yield value
    except RayError as error:
        raise InputError(f"ray: {_last_line(error)}") from error


def _count(row: dict[str, Any]) -> dict[str, Any]:
    """Counts one part in a worker; what the user can put right comes back as a value."""
    from vtrim.chat.feed import FastPathDiffers
    from vtrim.cli.coverage_part import count_part
    from vtrim.errors import VtrimError

    value: Any
    try:
        value = count_part(pickle.loads(row["spec"]))  # noqa: S301 - from our own driver
    except (VtrimError, FastPathDiffers) as error:
        value = error
    except Exception:  # noqa: BLE001 - shown by the driver, with its traceback
        value = traceback.format_exc()
    return {"unit": row["unit"], "value": pickle.dumps(value)}


def _last_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
