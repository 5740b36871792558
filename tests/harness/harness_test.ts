/** The harness itself: what it promises is what every end-to-end test relies on. */
import assert from "node:assert/strict";
import { connect } from "@nats-io/transport-node";
import { jetstreamManager } from "@nats-io/jetstream";
import { eventually, GaveUp, ManagedProcess, TestFolder } from "./process.ts";
import { NatsServer } from "./nats_server.ts";

function deno(folder: TestFolder, program: string): ManagedProcess {
  Deno.writeTextFileSync(folder.file("program.ts"), program);
  return ManagedProcess.start({
    name: "program",
    command: [
      Deno.execPath(),
      "run",
      "--quiet",
      "--no-prompt",
      "--no-config",
      "--allow-env",
      folder.file("program.ts"),
    ],
    env: { GIVEN: "yes" },
  });
}

Deno.test("a process is read line by line and ended by a signal", async () => {
  using folder = new TestFolder();
  await using process = deno(
    folder,
    `Deno.addSignalListener("SIGTERM", () => { console.log("told"); Deno.exit(3); });
     setInterval(() => {}, 1000);
     console.log("given=" + Deno.env.get("GIVEN"), "inherited=" + Deno.env.get("SIE_HARNESS_PROBE"));
     console.error("ready");`,
  );
  Deno.env.set("SIE_HARNESS_PROBE", "leaked");
  try {
    await process.line("ready", (line) => line === "ready");
  } finally {
    Deno.env.delete("SIE_HARNESS_PROBE");
  }
  const status = await process.stop("SIGTERM");
  assert.equal(status.code, 3);
  assert.ok(process.lines.includes("given=yes inherited=undefined"), process.output());
  assert.ok(process.lines.includes("told"));
  assert.equal(process.running, false);
});

Deno.test("waiting for a line fails when the process ends first", async () => {
  using folder = new TestFolder();
  await using process = deno(folder, `console.log("the only line"); Deno.exit(4);`);
  await assert.rejects(
    process.line("a line that never comes", (line) => line === "never"),
    /program ended before a line that never comes \(exit code 4\).*\n.*the only line/s,
  );
});

Deno.test("waiting for a condition fails when the process ends first", async () => {
  using folder = new TestFolder();
  await using process = deno(folder, `Deno.exit(5);`);
  await assert.rejects(process.until("never", () => false), /program ended before never \(exit code 5\)/);
});

Deno.test("a process that ignores the signal is killed and reported", async () => {
  using folder = new TestFolder();
  await using process = deno(
    folder,
    `Deno.addSignalListener("SIGTERM", () => console.log("ignored")); setInterval(() => {}, 1000); console.log("up");`,
  );
  await process.line("up", (line) => line === "up");
  await assert.rejects(process.stop("SIGTERM", 300), /did not end within 300 ms and was killed/);
  assert.equal(process.running, false);
});

Deno.test("eventually reports the last error, and ends at once when there is no hope", async () => {
  await assert.rejects(
    eventually("the impossible", () => {
      throw new Error("because");
    }, 20),
    /not within 20 ms: the impossible; last error: because/,
  );
  let looks = 0;
  await assert.rejects(
    eventually("the lost", () => {
      looks++;
      throw new GaveUp("lost");
    }),
    /^Error: lost$|lost/,
  );
  assert.equal(looks, 1);
});

Deno.test("a nats-server keeps a file stream over a restart at the same address", async () => {
  using folder = new TestFolder();
  await using first = await NatsServer.start({ folder: folder.path });
  const before = await connect({ servers: first.url });
  const manager = await jetstreamManager(before);
  await manager.streams.add({ name: "KEPT", subjects: ["kept.>"] });
  await before.close();
  await using second = await first.restart();
  assert.equal(second.port, first.port);
  const after = await connect({ servers: second.url });
  const info = await (await jetstreamManager(after)).streams.info("KEPT");
  assert.equal(info.config.name, "KEPT");
  await after.close();
  await second.stop();
});

Deno.test("a nats-server takes a configuration of its own", async () => {
  using folder = new TestFolder();
  await using server = await NatsServer.start({
    folder: folder.path,
    config: `authorization { users = [ { user: "worker", password: "right" } ] }`,
  });
  const connection = await connect({ servers: server.url, user: "worker", pass: "right" });
  assert.equal(connection.info?.auth_required, true);
  await connection.close();
});
