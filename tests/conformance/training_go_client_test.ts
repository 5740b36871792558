/** A client in Go, in the shape of the reference's, works against the trainer unchanged. Needs `go`. */
import assert from "node:assert/strict";
import { fromFileUrl } from "../harness/paths.ts";
import { TestService } from "../training/support.ts";

const CLIENT = fromFileUrl(new URL("../training/go_client", import.meta.url));

interface GoAck {
  readonly ok: boolean;
  readonly step: number;
  readonly trained: boolean;
  readonly loss: number;
  readonly checkpoint: string | null;
  readonly error: string;
  readonly retryable: boolean;
}

Deno.test("a reference-shaped client in Go: every answer decodes within its 2 s, checkpoints included", async () => {
  await using trainer = await TestService.start({
    VMAFX_SIDECAR_N_FEATURES: "80",
    VMAFX_SIDECAR_BATCH_SIZE: "32",
    VMAFX_SIDECAR_MIN_SAMPLES_CKPT: "100",
  });
  const count = 400;
  const { success, stdout, stderr } = await new Deno.Command("go", {
    args: ["run", ".", trainer.socket, "80", `${count}`],
    cwd: CLIENT,
    // The standard library is all it needs: nothing is fetched.
    env: { GOTOOLCHAIN: "local", GOFLAGS: "-mod=readonly", GOPROXY: "off" },
  }).output();
  assert.ok(success, new TextDecoder().decode(stderr));
  const acks = new TextDecoder().decode(stdout).trimEnd().split("\n").map((line) => JSON.parse(line) as GoAck);
  assert.equal(acks.length, count + 2);
  const bad = acks.splice(count);
  assert.deepEqual(bad.map((ack) => [ack.ok, ack.retryable, ack.error]), [
    [false, false, "features is not an array"],
    [false, false, "feature vector length 81 != expected 80"],
  ]);
  acks.forEach((ack, i) => {
    assert.ok(ack.ok);
    assert.equal(ack.trained, (i + 1) % 16 === 0);
    assert.equal(ack.step, Math.floor((i + 1) / 16));
    assert.equal(ack.loss > 0, ack.trained);
  });
  const paths = acks.flatMap((ack) => ack.checkpoint ?? []);
  assert.deepEqual(paths, [1, 2, 3].map((version) => trainer.folder.file(`versions/model_v00000${version}.onnx`)));
});
