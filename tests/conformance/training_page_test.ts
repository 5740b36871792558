/**
 * The trainer's page in a real browser: drawn, readable at any width, in both colour schemes, without scripts and complaints.
 * `CHROMIUM` names the browser; `deno task conformance` unpacks one.
 */
import assert from "node:assert/strict";
import { TestFolder } from "../harness/process.ts";
import { BrowserPage } from "../training/browser/devtools.ts";
import { LinearData, LineClient, TestService } from "../training/support.ts";

function browser(): string {
  const path = Deno.env.get("CHROMIUM");
  assert.ok(path, "CHROMIUM is not set: run this by `deno task conformance`");
  return path;
}

async function trained(): Promise<TestService> {
  const folder = new TestFolder(), data = new LinearData(3);
  Deno.writeTextFileSync(folder.file("fixtures.json"), data.fixtures(12));
  const trainer = await TestService.start({
    VMAFX_SIDECAR_LR: "0.02",
    VMAFX_SIDECAR_EMA_DECAY: "0.9",
    VMAFX_SIDECAR_MIN_SAMPLES_CKPT: "100",
    VMAFX_SIDECAR_GATE_FIXTURES: folder.file("fixtures.json"),
    VMAFX_SIDECAR_VERSION_POLICY: "latest",
  }, folder);
  using client = await LineClient.connect(trainer.socket);
  for (let i = 0; i < 1200; i++) {
    const features = data.row();
    // The last part is poisoned, so that versions of several states are on the page.
    const score = i < 800 ? data.score(features) : 100 - data.score(features);
    await client.ask({ features, true_score: score });
  }
  await trainer.service.settled();
  return trainer;
}

Deno.test("the page draws loss, correlation and versions, in light and dark, wide and narrow", async () => {
  await using trainer = await trained();
  await using page = await BrowserPage.start(browser());
  await page.call("Emulation.setDeviceMetricsOverride", {
    width: 820,
    height: 1400,
    deviceScaleFactor: 1,
    mobile: false,
  });
  await page.load(`${trainer.http}/`);
  assert.equal(await page.evaluate("document.title"), "Online training: running");
  const curve = await page.evaluate<number>("document.querySelector('#loss .curve').getTotalLength()");
  assert.ok(curve > 500, `the curve is ${curve} units long`);
  const circles = "[...document.querySelectorAll('#plcc circle')]";
  const versions = trainer.service.status().checkpoint_counter;
  assert.equal(await page.evaluate(`${circles}.length`), versions);
  const inside = `(() => { const box = document.querySelector('#plcc').getBoundingClientRect();
    return ${circles}.every((circle) => { const it = circle.getBoundingClientRect();
      return it.width > 4 && it.left >= box.left && it.right <= box.right && it.top >= box.top && it.bottom <= box.bottom; }); })()`;
  assert.equal(await page.evaluate(inside), true, "every point lies within its drawing");
  const states = await page.evaluate<string[]>(
    `[...new Set(${circles}.map((circle) => circle.getAttribute('class')))]`,
  );
  assert.ok(states.includes("stable") && states.includes("unstable"), states.join());
  const rows = await page.evaluate<string[]>(
    "[...document.querySelectorAll('tbody td:first-child')].map((cell) => cell.innerText)",
  );
  assert.deepEqual(
    rows,
    Array.from({ length: versions }, (_, i) => `online.${versions - i}${i === 0 ? " (serves)" : ""}`),
  );

  const background = () => page.evaluate<string>("getComputedStyle(document.body).backgroundColor");
  const light = await background();
  await page.call("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: "dark" }] });
  assert.notEqual(await background(), light);
  const drawn = await page.screenshot();
  // An empty page of this size takes a few thousand bytes.
  assert.ok(drawn.length > 15_000, `${drawn.length} bytes`);

  await page.call("Emulation.setDeviceMetricsOverride", {
    width: 360,
    height: 800,
    deviceScaleFactor: 1,
    mobile: true,
  });
  await page.load(`${trainer.http}/`);
  assert.ok(
    await page.evaluate<number>("document.documentElement.scrollWidth") <= 360,
    "nothing sticks out of a telephone",
  );
  assert.deepEqual(page.complaints, []);
});

Deno.test("the page of a trainer that has done nothing says so", async () => {
  await using trainer = await TestService.start();
  await using page = await BrowserPage.start(browser());
  await page.load(`${trainer.http}/`);
  const text = await page.evaluate<string>("document.body.innerText");
  for (const part of ["No step yet.", "No version yet.", "No version has been compared with fixtures."]) {
    assert.ok(text.includes(part), text);
  }
  assert.deepEqual(page.complaints, []);
});
