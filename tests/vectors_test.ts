/** All vector files that are claimed, one test a file and one step a case. `deno task vectors` shows the same as a table. */
import assert from "node:assert/strict";
import { allClaims } from "./claims/all.ts";
import { listVectorFiles, registerVectorTests } from "./harness/vectors.ts";

Deno.test("each claimed vector file exists and is claimed once", () => {
  const present = new Set(listVectorFiles());
  const claimed = new Set<string>();
  for (const file of allClaims.flatMap((claim) => claim.files)) {
    assert.ok(present.has(file), `${file} is claimed but there is no such vector file`);
    assert.ok(!claimed.has(file), `${file} is claimed twice`);
    claimed.add(file);
  }
});

registerVectorTests(allClaims);
