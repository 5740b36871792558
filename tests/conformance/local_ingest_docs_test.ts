/** The worked examples of docs/local-ingest.md, run as they stand against the real backend. */
import assert from "node:assert/strict";
import { fromFileUrl } from "../harness/paths.ts";
import { peersFolder, startBackend } from "../harness/peers.ts";
import { accepts, eventually, freePort, ManagedProcess, TestFolder } from "../harness/process.ts";
import { Sidecar } from "../harness/sidecar.ts";

const ROOT = new URL("../../", import.meta.url);

/** The one fenced block of a language. */
function exampleIn(language: string): string {
  const text = Deno.readTextFileSync(fromFileUrl(new URL("docs/local-ingest.md", ROOT)));
  const blocks = [...text.matchAll(/^```(\w+)\n(.*?)^```$/gms)].filter((match) => match[1] === language);
  assert.equal(blocks.length, 1, `${blocks.length} examples in ${language}`);
  return blocks[0]?.[2] ?? "";
}

async function withSidecar(run: (folder: TestFolder, socket: string) => Promise<void>): Promise<void> {
  using folder = new TestFolder();
  const socket = folder.file("ingest.sock");
  await using backend = await startBackend({ socket: folder.file("ipc.sock") });
  await using sidecar = await Sidecar.start({
    env: {
      SIE_POOL: "default",
      SIE_BUNDLE: "fake",
      SIE_MACHINE_PROFILE: "cpu",
      SIE_SIDECAR_INGEST: "local",
      SIE_SIDECAR_LOCAL_SOCKET: socket,
      SIE_IPC_SOCKET_PATH: folder.file("ipc.sock"),
    },
  });
  assert.ok(await accepts(socket));
  await run(folder, socket);
  await sidecar.stop();
  await backend.stop("SIGTERM");
}

Deno.test("the Python example", async () => {
  await withSidecar(async (folder, socket) => {
    const program = folder.file("example.py");
    Deno.writeTextFileSync(program, exampleIn("python"));
    await using python = ManagedProcess.start({
      name: "example.py",
      command: [`${peersFolder()}/venv/bin/python`, program, socket, "peer-fake"],
      env: { PYTHONDONTWRITEBYTECODE: "1" },
    });
    const { code } = await python.end();
    assert.equal(code, 0, python.output());
    const lines = python.lines.map((line) => JSON.parse(line) as Record<string, unknown>);
    const results = lines.filter((line) => "item" in line);
    assert.deepEqual(results.map(({ success }) => success), [true, true]);
    const chunks = lines.filter((line) => "text" in line);
    assert.equal(chunks.at(-1)?.["done"], true);
    assert.ok(chunks.map(({ text }) => text).join("").length > 0);
  });
});

Deno.test("the TypeScript example", async () => {
  await withSidecar(async (folder, socket) => {
    const program = folder.file("gateway.ts");
    Deno.writeTextFileSync(program, exampleIn("ts").replaceAll('"../src/', `"${new URL("src/", ROOT).href}`));
    const port = freePort();
    await using gateway = ManagedProcess.start({
      name: "gateway.ts",
      command: [
        ...[Deno.execPath(), "run", "--quiet", "--no-prompt", `--config=${fromFileUrl(new URL("deno.json", ROOT))}`],
        ...["--allow-env", "--allow-net", `--allow-read=${folder.path},${fromFileUrl(ROOT)}`],
        ...[`--allow-write=${folder.path}`, program],
      ],
      env: { INGEST_SOCKET: socket, PORT: String(port) },
    });
    const post = async (path: string, body: unknown, signal?: AbortSignal) =>
      await fetch(`http://127.0.0.1:${port}${path}`, {
        method: "POST",
        body: JSON.stringify(body),
        ...(signal === undefined ? {} : { signal }),
      });
    const vectors = await eventually("the gateway answers", async () => {
      const response = await post("/encode", { model: "peer-fake", texts: ["one", "two"] });
      return await response.json() as { vector: number[] }[];
    });
    assert.deepEqual(vectors.map(({ vector }) => vector.length), [8, 8]);
    assert.notDeepEqual(vectors[0], vectors[1]);

    const streamed = await post("/generate", { model: "peer-fake", prompt: "Once", max_new_tokens: 8 });
    assert.equal(streamed.headers.get("content-type"), "text/event-stream");
    const events = (await streamed.text()).trim().split("\n\n").map((event) => JSON.parse(event.replace("data: ", "")));
    assert.equal(events.at(-1)?.done, true);
    assert.ok(events.length > 1);

    const refused = await post("/generate", { model: "peer-fake", prompt: "Once", max_new_tokens: -1 });
    const text = await refused.text();
    assert.ok(text.includes("error"), text);
    assert.equal((await post("/encode", { model: "peer-fake", texts: [] })).status, 400);

    // A caller that goes away in mid-stream ends the generation.
    const slow = { model: "peer-fake:slow-gen", prompt: "Once", max_new_tokens: 200 };
    const first = await eventually("the slow model is loaded", async () => {
      const abort = new AbortController();
      const response = await post("/generate", slow, abort.signal);
      if (response.status === 200) return { response, abort };
      await response.body?.cancel();
      return undefined;
    });
    const reader = first.response.body?.getReader();
    assert.ok((await reader?.read())?.value !== undefined);
    first.abort.abort();
    await reader?.closed.catch(() => {});
    assert.equal((await post("/encode", { model: "peer-fake", texts: ["still there"] })).status, 200);
    await gateway.stop("SIGKILL");
  });
});
