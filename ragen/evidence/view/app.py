"""The addresses of the live pages, and what each answers.

/                                             all runs, as a page; /runs?since=NUMBER: what changed, as JSON
/run/NAME                                     a run, as a page; /run/NAME/data: what the page draws, as JSON
/run/NAME/data?since=40; /panels               what is new from an iteration on; the panels of all other metrics
/run/NAME/status                              its state, and the version of its data: asked again and again
/run/NAME/trajectories?iteration=3&group=     those of a rollout, one group with its turns, as gzipped JSON
/run/NAME/trajectories?iteration=3&source=    those of an evaluation
/run/NAME/plane                               its probes of reasoning, drawn
/compare?run=NAME&run=OTHER                   runs beside each other, as a page; /compare/data, /compare/status as above
/run/NAME/search?text=push&success=false      trajectories of all rollouts (`query.Query`), as JSON
/run/NAME/lineage?artifact=turns/KEY          what it was made from and what uses it, in all runs (`origins`), as JSON
/run/NAME/checkpoints?iteration=3&source=sokoban&trajectory=p0000-0
                                              that episode's initial state at every checkpoint, as JSON
/run/NAME/other_runs?(the same)               that state in other runs, each at the nearest checkpoint, as JSON
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from pydantic import TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from starpo.ragen.core.allocator import give_back_freed_memory
from starpo.ragen.core.errors import ConfigError, QueryError, StarPOError, one_line
from starpo.ragen.evidence.report.document import rounded
from starpo.ragen.evidence.report.groups import OneGroup
from starpo.ragen.evidence.report.page import page_data, panels_data, plane_of, render_live_page
from starpo.ragen.evidence.view.compare_page import render_compare
from starpo.ragen.evidence.view.comparing import choose, chosen_names, compared, version_of
from starpo.ragen.evidence.view.listing import RunList
from starpo.ragen.evidence.view.origins import origins
from starpo.ragen.evidence.view.query import Query
from starpo.ragen.evidence.view.reading import StoreReader
from starpo.ragen.evidence.view.runs_page import render_runs
from starpo.ragen.evidence.view.searching import search
from starpo.ragen.evidence.view.states import EpisodeName, PanelStates

T = TypeVar("T")

_NUM_THREADS = 4
"""Threads that read the store: each keeps memory of its own."""
_LARGE = 2**17
"""Bytes of an answer after which freed memory is given back."""
_QUERY = TypeAdapter(Query)
_EPISODE = TypeAdapter(EpisodeName)
_OF_STATUS = ("state", "iterations", "planned", "activity", "seconds_left", "warning", "failure", "fault")


def application(reader: StoreReader) -> Starlette:
    """Return the ASGI application, to be wrapped in a `Guard`."""
    states, listed = PanelStates(reader), RunList(reader)

    def runs(request: Request) -> Response:
        number = request.query_params.get("since", "0")
        if not _is_number(number):
            return PlainTextResponse("since: a whole number is expected", 400)
        return Response(listed.since(int(number)), media_type="application/json")

    def runs_page(_: Request) -> Response:
        return HTMLResponse(render_runs(reader.store.url, listed.newest()))

    def run_page(request: Request) -> Response:
        name = request.path_params["run"]
        viewed = reader.run(name)
        return HTMLResponse(render_live_page(viewed.data, viewed.missing, status_of(name, viewed.version)))

    def status(request: Request) -> Response:
        name = request.path_params["run"]
        return _json(status_of(name, reader.version(name)))

    def status_of(name: str, version: str) -> dict[str, Any]:
        facts = reader.facts(name, version)
        return {"version": version, **{field: facts[field] for field in _OF_STATUS}}

    def data(request: Request) -> Response:
        since = request.query_params.get("since", "0")
        if not _is_number(since):
            return PlainTextResponse("since: a whole number is expected", 400)
        viewed = reader.run(request.path_params["run"])
        return _json({"version": viewed.version, **rounded(page_data(viewed.data, int(since)))})

    def panels(request: Request) -> Response:
        return _json(rounded(panels_data(reader.run(request.path_params["run"]).data)))

    def trajectories(request: Request) -> Response:
        iteration, cell = request.query_params.get("iteration", ""), request.query_params.get("source")
        if not _is_number(iteration):
            return PlainTextResponse("iteration: a whole number is expected", 400)
        only = OneGroup(*(request.query_params.get(name) for name in ("group", "trajectory")))
        packed = reader.trajectories(request.path_params["run"], int(iteration), cell or None, only)
        return Response(packed, media_type="application/json", headers={"Content-Encoding": "gzip"})

    def plane(request: Request) -> Response:
        return Response(plane_of(reader.run(request.path_params["run"]).data), media_type="image/svg+xml")

    def compare_page(request: Request) -> Response:
        return HTMLResponse(render_compare(reader.store.url, comparison(request)))

    def compare_data(request: Request) -> Response:
        return _json(rounded(comparison(request)))

    def compare_status(request: Request) -> Response:
        names = chosen_names(request.query_params.multi_items())
        return _json({"version": version_of(reader, names), "status": statuses(names)})

    def comparison(request: Request) -> dict[str, Any]:
        names = chosen_names(request.query_params.multi_items())
        version = version_of(reader, names)
        chosen = choose(reader, names)
        return {"version": version, "status": statuses(names), **compared(reader, chosen)}

    def statuses(names: list[str]) -> dict[str, dict[str, Any]]:
        known = {}
        for name in names:
            with suppress(StarPOError):  # named among those that are refused
                facts = reader.facts(name, reader.version(name))
                known[name] = {field: facts[field] for field in ("updates", *_OF_STATUS)}
        return known

    def search_page(request: Request) -> Response:
        return _json(search(reader.store, reader.run(request.path_params["run"]).data, _parsed(_QUERY, request)))

    def lineage(request: Request) -> Response:
        return _json(origins(reader.store, request.query_params.get("artifact", "")))

    def checkpoints(request: Request) -> Response:
        return _json(states.checkpoints(request.path_params["run"], _parsed(_EPISODE, request)))

    def other_runs(request: Request) -> Response:
        return _json(states.other_runs(request.path_params["run"], _parsed(_EPISODE, request)))

    def no_icon(_: Request) -> Response:  # browsers ask for one
        return Response(status_code=204)

    pages = {
        "/": runs_page,
        "/favicon.ico": no_icon,
        "/runs": runs,
        "/compare": compare_page,
        "/compare/data": compare_data,
        "/compare/status": compare_status,
        "/run/{run}": run_page,
        "/run/{run}/status": status,
        "/run/{run}/data": data,
        "/run/{run}/panels": panels,
        "/run/{run}/trajectories": trajectories,
        "/run/{run}/plane": plane,
        "/run/{run}/search": search_page,
        "/run/{run}/lineage": lineage,
        "/run/{run}/checkpoints": checkpoints,
        "/run/{run}/other_runs": other_runs,
    }
    threads = CapacityLimiter(_NUM_THREADS)
    return Starlette(routes=[Route(path, _answering(answer, threads)) for path, answer in pages.items()])


def _answering(answer: Callable[[Request], Response], threads: CapacityLimiter) -> Callable[[Request], Any]:
    """Answer in a thread, with the error's own words where something cannot be read, and not twice what is known."""

    async def answered(request: Request) -> Response:
        try:
            response = await to_thread.run_sync(answer, request, limiter=threads)
        except (ConfigError, QueryError) as error:
            return PlainTextResponse(one_line(error), 400)
        except StarPOError as error:
            return PlainTextResponse(one_line(error), 404)
        if len(response.body) > _LARGE:
            give_back_freed_memory()
        tag = f'"{hashlib.sha256(bytes(response.body)).hexdigest()[:32]}"'
        response.headers.update({"ETag": tag, "Cache-Control": "private, no-cache"})
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return response

    return answered


def _parsed(adapter: TypeAdapter[T], request: Request) -> T:
    """Return what an address asks for, or answer what is wrong with it."""
    try:
        return adapter.validate_python({name: value for name, value in request.query_params.items() if value})
    except ValidationError as error:
        fault = error.errors()[0]
        raise HTTPException(400, f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < 18


def _json(value: Any) -> Response:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return Response(text.encode("utf-8", "surrogatepass"), media_type="application/json")
