import assert from "node:assert/strict";
import { mergeCapabilities, mergeConfigAnswers } from "../../src/ipc/merge.ts";
import type { WorkerCapabilities } from "../../src/wire/ipc/heartbeat.ts";
import type { ModelConfigAnswer } from "../../src/wire/ipc/model_config.ts";

function capabilities(fields: Partial<WorkerCapabilities> = {}): WorkerCapabilities {
  return {
    supportsExecutionAuthorityV1: true,
    supportsNumericalAdmissionV1: true,
    hasGenerationModels: false,
    generationModels: [],
    supportedModels: [],
    loadedModels: [],
    ...fields,
  };
}

function config(fields: Partial<ModelConfigAnswer> = {}): ModelConfigAnswer {
  return {
    applied: true,
    bundleConfigHash: "h",
    configVersion: 1,
    appliedModels: ["a"],
    appliedProfiles: ["default"],
    unsupportedModels: [],
    ...fields,
  };
}

Deno.test("a capability is there only if it is everywhere, a model if it is anywhere", () => {
  const merged = mergeCapabilities([
    capabilities({ hasGenerationModels: true, generationModels: ["g2"], loadedModels: ["x"] }),
    capabilities({ supportsNumericalAdmissionV1: false, generationModels: ["g1"], supportedModels: ["s"] }),
  ]);
  assert.deepEqual(merged, {
    supportsExecutionAuthorityV1: true,
    supportsNumericalAdmissionV1: false,
    hasGenerationModels: true,
    generationModels: ["g1", "g2"],
    supportedModels: ["s"],
    loadedModels: ["x"],
  });
  assert.equal(mergeCapabilities([]).supportsExecutionAuthorityV1, false);
});

Deno.test("a configuration is applied only if all agree", () => {
  const cases: readonly (readonly [string, Partial<ModelConfigAnswer>[], boolean])[] = [
    ["one", [{}], true],
    ["two alike", [{}, { configVersion: 7 }], true],
    ["a child without a hash", [{ bundleConfigHash: "" }, {}], true],
    ["another hash", [{}, { bundleConfigHash: "x" }], false],
    ["not applied", [{}, { applied: false }], false],
    ["other models", [{}, { appliedModels: ["b"] }], false],
    ["the same models in another order", [{ appliedModels: ["a", "b"] }, { appliedModels: ["b", "a"] }], true],
    ["other profiles", [{}, { appliedProfiles: [] }], false],
    ["nobody", [], false],
  ];
  for (const [name, answers, applied] of cases) {
    assert.equal(mergeConfigAnswers(answers.map(config)).applied, applied, name);
  }
  const merged = mergeConfigAnswers([
    config({ bundleConfigHash: "", configVersion: 3, unsupportedModels: ["z"] }),
    config({ configVersion: 2, unsupportedModels: ["a"] }),
  ]);
  assert.deepEqual(
    [merged.bundleConfigHash, merged.configVersion, merged.unsupportedModels],
    ["h", 3, ["a", "z"]],
  );
});
