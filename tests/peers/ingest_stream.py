#!/usr/bin/env python3
"""One generation through a local-ingest socket with the client of the installed sie-server.

The parameters of the generation are JSON, so that a test can ask the backend for anything. Prints one JSON line per chunk, then
{"end": n} or {"error": text}.
"""

import argparse
import asyncio
import json
import time

import msgpack
from sie_server.local_ingest_client import LocalIngestStreamError, stream_generate


def work_item(arguments):
    request = arguments.request_id
    return {
        "work_item_id": f"{request}.0",
        "request_id": request,
        "item_index": 0,
        "total_items": 1,
        "operation": "generate",
        "model_id": arguments.model,
        "profile_id": "default",
        "engine": arguments.engine,
        "pool_name": arguments.pool,
        "admission_pool": arguments.pool,
        "machine_profile": "cpu",
        "bundle_config_hash": arguments.hash,
        "router_id": "python-client",
        "reply_subject": "",
        "timestamp": time.time(),
        "generate": json.loads(arguments.generate),
    }


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    parser.add_argument("--request-id", required=True)
    parser.add_argument("--generate", required=True, help="parameters as JSON")
    parser.add_argument("--model", default="peer-fake")
    parser.add_argument("--engine", default="fake")
    parser.add_argument("--pool", default="default")
    parser.add_argument("--hash", default="", help="bundle_config_hash")
    parser.add_argument("--timeout-ms", type=int, default=0)
    parser.add_argument("--stop-after", type=int, help="close the connection after so many chunks")
    parser.add_argument("--traceparent")
    arguments = parser.parse_args()
    meta = {
        "request_id": arguments.request_id,
        "lane": f"{arguments.pool}|cpu|{arguments.model}",
        "endpoint": "generate",
        "model": arguments.model,
        "engine": arguments.engine,
        "admission_pool": arguments.pool,
        "bundle_config_hash": arguments.hash,
        "timeout_ms": arguments.timeout_ms,
        "traceparent": arguments.traceparent,
    }
    chunks = stream_generate(arguments.socket, msgpack.packb([work_item(arguments)]), msgpack.packb({}), meta)
    count = 0
    try:
        async for chunk in chunks:
            print(json.dumps(msgpack.unpackb(chunk, raw=False), default=repr), flush=True)
            count += 1
            if count == arguments.stop_after:
                await chunks.aclose()
                break
    except LocalIngestStreamError as error:
        print(json.dumps({"error": str(error)}))
    else:
        print(json.dumps({"end": count}))


asyncio.run(main())
