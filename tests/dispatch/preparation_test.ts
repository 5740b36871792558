/** What preparation refuses, fetches and answers by itself (spec/preparation.md 1). */
import assert from "node:assert/strict";
import { PayloadTooLargeError } from "../../src/dispatch/payload_error.ts";
import { msgpack } from "../harness/work_items.ts";
import { ACK, Rig, settlements, take } from "./rig.ts";

Deno.test("load settles silently once the model is ready; an unknown operation is answered after it", async () => {
  const rig = new Rig();
  const arrivals = [
    rig.arrival({ request_id: "l", operation: "load", item: null }),
    rig.arrival({ request_id: "u", operation: "translate" }),
  ];
  await take(rig, arrivals);
  assert.deepEqual(settlements(arrivals), [ACK, ACK]);
  assert.deepEqual(rig.sender.sent, [
    { kind: "refusal", item: "u.0", refusal: { code: "bad_operation", message: "unknown operation" } },
  ]);
});

Deno.test("payload references", async (t) => {
  const stored = new Map<string, Uint8Array>([
    ["item.bin", msgpack({ text: "fetched" })],
    ["score.bin", msgpack({ query: { text: "q" }, items: [{ text: "d1" }, { text: "d2" }] })],
    ["scalar.bin", msgpack(7)],
    ["cut.bin", msgpack({ text: "fetched" }).subarray(0, 5)],
  ]);
  const payloads = {
    fetch: (reference: string) => {
      if (reference === "huge.bin") return Promise.reject(new PayloadTooLargeError(35_717_121, 35_717_120));
      const found = stored.get(reference);
      return found === undefined ? Promise.reject(new Error("not found")) : Promise.resolve(found);
    },
  };
  const error = async (fields: Parameters<Rig["arrival"]>[0], withStore = true) => {
    const rig = new Rig(withStore ? { payloads } : {});
    const arrival = rig.arrival(fields);
    await take(rig, [arrival]);
    assert.deepEqual(arrival.delivery.settlement, ACK);
    const [sent] = rig.sender.sent;
    return sent?.kind === "refusal" ? sent.refusal.code : rig.backend.batches;
  };
  await t.step("an item is fetched in place of its input", async () => {
    const batches = await error({ item: null, payload_ref: "item.bin" });
    assert.ok(Array.isArray(batches));
    assert.deepEqual(batches[0]?.entries[0]?.input.item, stored.get("item.bin"));
  });
  await t.step("a score payload is taken apart", async () => {
    const batches = await error({ operation: "score", item: null, query_payload_ref: "score.bin" });
    assert.ok(Array.isArray(batches));
    assert.deepEqual(batches[0]?.entries[0]?.input.queryItem, msgpack({ text: "q" }));
    assert.equal(batches[0]?.totalCost, 6);
  });
  for (
    const [name, fields, code] of [
      ["no input at all", { item: null }, "payload_error"],
      ["missing object", { item: null, payload_ref: "nowhere.bin" }, "payload_error"],
      ["cut short", { item: null, payload_ref: "cut.bin" }, "payload_error"],
      [
        "score payload of another shape",
        { operation: "score", item: null, query_payload_ref: "item.bin" },
        "payload_error",
      ],
      ["too large", { item: null, payload_ref: "huge.bin" }, "PAYLOAD_TOO_LARGE"],
      ["not a map", { item: null, payload_ref: "scalar.bin" }, "INVALID_INPUT"],
    ] as const
  ) {
    await t.step(name, async () => assert.equal(await error(fields), code));
  }
  await t.step("no store", async () => {
    assert.equal(await error({ item: null, payload_ref: "item.bin" }, false), "payload_error");
  });
});

Deno.test("input that would make the backend hang up or refuse the batch is refused alone", async () => {
  const rig = new Rig();
  const arrivals = [
    rig.arrival({ request_id: "scalar", item: 7 }),
    rig.arrival({ request_id: "list", operation: "score", query_item: { text: "q" }, score_items: ["d"] }),
    rig.arrival({ request_id: "options", options: "fast" }),
    rig.arrival({ request_id: "query", operation: "score", query_item: { id: "q" }, score_items: [{ text: "d" }] }),
    rig.arrival({ request_id: "good" }),
  ];
  await take(rig, arrivals);
  assert.deepEqual(settlements(arrivals), [ACK, ACK, ACK, ACK, ACK]);
  const texts = rig.sender.sent.map((sent) =>
    sent.kind === "refusal" ? `${sent.refusal.code}: ${sent.refusal.message}` : sent.item
  );
  assert.deepEqual(texts.sort(), [
    "INVALID_INPUT: each of score_items must be a map with string keys",
    "INVALID_INPUT: item must be a map with string keys",
    "INVALID_INPUT: options must be a map with string keys",
    "INVALID_INPUT: query_item must hold text or media",
    "good.0",
  ]);
});
