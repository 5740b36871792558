/** `probe_http.json`, asked of the real server; `/readyz` in every state of `readiness.json`. */
import assert from "node:assert/strict";
import { startProbeServer } from "../../../src/health/probe_server.ts";
import type { ReadinessState } from "../../../src/health/readiness.ts";
import type { VectorClaim } from "../../harness/vectors.ts";
import { readinessAt, type ReadyzRow } from "./heartbeat.ts";

interface ProbeRow {
  readonly method: string;
  readonly path: string;
  readonly status: number | string;
  readonly body: string;
  readonly content_type: string | null;
}

/** See the module's comment. */
export const probeHttpClaim: VectorClaim = {
  files: ["health/probe_http.json"],
  *cases(data, context) {
    for (const row of (data as { cases: ProbeRow[] }).cases) {
      const name = `${row.method} ${row.path}`;
      if (typeof row.status === "number") {
        yield { name, check: () => checkRow(row) };
        continue;
      }
      const { readyz } = JSON.parse(new TextDecoder().decode(context.readBytes("health/readiness.json"))) as {
        readyz: ReadyzRow[];
      };
      for (const state of readyz) yield { name: `${name}: ${state.case}`, check: () => checkReadyz(row, state) };
    }
  },
};

async function checkRow(row: ProbeRow): Promise<void> {
  await asking(() => ({ ready: true }), async (origin) => {
    const response = await fetch(origin + row.path, { method: row.method });
    assert.equal(response.status, row.status);
    assert.equal(response.headers.get("content-type"), row.content_type);
    assert.equal(await response.text(), row.method === "HEAD" ? "" : row.body);
    if (row.method === "HEAD") assert.match(row.body, /^not found/);
  });
}

async function checkReadyz(row: ProbeRow, state: ReadyzRow): Promise<void> {
  const readiness = await readinessAt(state);
  await asking(() => readiness.state(), async (origin) => {
    const response = await fetch(origin + row.path, { method: row.method });
    assert.equal(response.status, state.status);
    // "text/plain; charset=utf-8 on 503"
    const [contentType, onStatus] = (row.content_type ?? "").split(" on ");
    assert.equal(response.headers.get("content-type"), `${response.status}` === onStatus ? contentType : null);
    assert.equal(await response.text(), state.body);
  });
}

async function asking(readiness: () => ReadinessState, ask: (origin: string) => Promise<void>): Promise<void> {
  const silent = { info: () => {}, error: () => {} };
  const server = startProbeServer({ hostname: "127.0.0.1", port: 0, readiness, log: silent });
  assert.ok(server !== undefined, "the server does not listen");
  try {
    await ask(`http://127.0.0.1:${server.port}`);
  } finally {
    await server.stop();
  }
}
