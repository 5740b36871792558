import assert from "node:assert/strict";
import { AppliedConfig } from "../../src/live_config/applied_config.ts";

Deno.test("an empty hash is accepted always, any other only when it is the one held", () => {
  const config = new AppliedConfig("h1");
  assert.deepEqual(["", "h1", "H1", "h2"].map((hash) => config.accepts(hash)), [true, true, false, false]);
  config.commit("h2", []);
  assert.deepEqual(["", "h1", "h2"].map((hash) => config.accepts(hash)), [true, false, true]);
  assert.equal(new AppliedConfig("").accepts("h1"), false);
});

Deno.test("a backend's hash is taken only while there is none", () => {
  const config = new AppliedConfig("");
  config.adoptBackendHash("");
  assert.equal(config.currentHash, "");
  config.adoptBackendHash("backend");
  config.adoptBackendHash("another");
  assert.equal(config.currentHash, "backend");
});

Deno.test("unsupported models are compared without regard to ASCII case, and kept trimmed, sorted and once each", () => {
  const config = new AppliedConfig("");
  config.commit("h", [" Org/Model ", "b", "", "  ", "b", "Ä", "a:prof"]);
  assert.deepEqual(config.unsupportedModels, ["Org/Model", "a:prof", "b", "Ä"]);
  const asked = ["org/model", "ORG/MODEL", "org/model:prof", "A:PROF", "B", "ä", "Ä", ""];
  assert.deepEqual(asked.map((model) => config.isUnsupported(model)), [
    true,
    true,
    false,
    true,
    true,
    false,
    true,
    false,
  ]);
});
