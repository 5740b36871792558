/** The trainer's manifests: what must agree agrees, and the resource accepts what it must and nothing else. */
import assert from "node:assert/strict";
import { parseAllDocuments } from "yaml";
import { strictGrants } from "../../scripts/lib/compile/grants.ts";
import { readOptions } from "../../scripts/lib/compile/options.ts";
import { trainNeeds } from "../../src/training/needs.ts";
import { loadTrainSettings, TRAINING_SETTINGS } from "../../src/training/settings.ts";
import { fromFileUrl } from "../harness/paths.ts";

const FOLDER = fromFileUrl(new URL("../../deploy/training", import.meta.url));

/** Whatever a manifest holds at a path. */
type Node = { readonly [key: string]: Node } & readonly Node[];

function documents(name: string): Node[] {
  return parseAllDocuments(Deno.readTextFileSync(`${FOLDER}/${name}`)).map((document) => {
    assert.deepEqual(document.errors, [], name);
    return document.toJS() as Node;
  });
}

function find(nodes: Iterable<Node>, name: string): Node {
  for (const node of nodes) if (`${node["name"] ?? node["kind"]}` === name) return node;
  return assert.fail(`there is no ${name}`);
}

function variables(container: Node): Record<string, string> {
  return Object.fromEntries([...container["env"] ?? []].map((entry) => [`${entry["name"]}`, `${entry["value"]}`]));
}

const manifests = documents("node.yaml");
const pod = find(manifests, "Deployment")["spec"]?.["template"]?.["spec"] as Node;
const sidecar = find(pod["initContainers"] ?? [], "vmafx-sidecar");
const node = find(pod["containers"] ?? [], "node");

Deno.test("both containers have the same user and the same socket, in a folder for its owner alone", () => {
  for (const container of [sidecar, node]) {
    assert.equal(container["securityContext"]?.["runAsUser"], undefined, "the pod's user is everybody's");
    assert.equal(container["securityContext"]?.["readOnlyRootFilesystem"], true);
    assert.deepEqual(container["securityContext"]?.["capabilities"], { drop: ["ALL"] });
  }
  assert.equal(pod["securityContext"]?.["runAsNonRoot"], true);
  const socket = variables(sidecar)["VMAFX_SIDECAR_SOCKET"] ?? "";
  assert.equal(variables(node)["VMAFX_SIDECAR_SOCKET"], socket);
  const made = find(pod["initContainers"] ?? [], "socket-folder")["command"] as unknown as string[];
  assert.deepEqual(made, ["mkdir", "-p", "-m", "0700", socket.slice(0, socket.lastIndexOf("/"))]);
  const names = [...pod["initContainers"] ?? []].map((container) => `${container["name"]}`);
  assert.ok(names.indexOf("socket-folder") < names.indexOf("vmafx-sidecar"));
  assert.equal(sidecar["restartPolicy"], "Always");
});

Deno.test("the models are writable for the trainer and read-only for the node", () => {
  const mount = (container: Node) => find(container["volumeMounts"] ?? [], "models");
  assert.equal(mount(sidecar)["readOnly"], undefined);
  assert.equal(mount(node)["readOnly"], true);
});

Deno.test("the service is where the operator polls, and the probes are paths of ours", () => {
  const [training] = documents("sample.yaml");
  const service = find(manifests, "Service");
  assert.equal(`${service["metadata"]?.["name"]}`, `vmafx-trainer-${training?.["metadata"]?.["name"]}`);
  assert.equal(service["metadata"]?.["namespace"], training?.["metadata"]?.["namespace"]);
  assert.equal([...service["spec"]?.["ports"] ?? []][0]?.["port"], 9091);
  const { port } = loadTrainSettings(variables(sidecar)).http ?? assert.fail();
  assert.equal(find(sidecar["ports"] ?? [], "trainer-http")["containerPort"], port);
  for (
    const [probe, path] of [["startupProbe", "/startupz"], ["livenessProbe", "/livez"], [
      "readinessProbe",
      "/readyz",
    ]] as const
  ) {
    assert.deepEqual(sidecar[probe]?.["httpGet"], { path, port: "trainer-http" });
  }
});

Deno.test("every variable is one of ours, and the strict binary may do what the manifest asks for, no more", () => {
  const known = Object.values(TRAINING_SETTINGS).map((setting) => setting.name as string);
  for (const name of Object.keys(variables(sidecar))) assert.ok(known.includes(name), name);
  const options = readOptions(
    ["--profile", "train", "--deployment", "strict.json"],
    (path) => Deno.readTextFileSync(`${FOLDER}/${path}`),
  );
  assert.ok(options !== undefined);
  const needs = trainNeeds(loadTrainSettings(variables(sidecar))).map(({ permission, target }) =>
    `${permission} ${target}`
  );
  const baked = strictGrants("train", options.deployment).map(({ kind, value }) => `${kind} ${value}`);
  assert.deepEqual(baked.sort(), [...needs, "env true"].sort());
});

/** The part of OpenAPI that the resource uses. */
interface Schema {
  readonly type: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly enum?: readonly unknown[];
  readonly pattern?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minLength?: number;
  readonly format?: string;
  readonly default?: unknown;
}

function faults(schema: Schema, value: unknown, path = ""): string[] {
  const known = [
    "type",
    "properties",
    "required",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "format",
    "default",
  ];
  for (const key of Object.keys(schema)) assert.ok(known.includes(key), `this test does not know ${key}`);
  if (schema.type === "object") {
    if (typeof value !== "object" || value === null || Array.isArray(value)) return [`${path}: no object`];
    const fields = value as Record<string, unknown>;
    const missing = (schema.required ?? []).filter((key) => fields[key] === undefined).map((key) =>
      `${path}.${key}: missing`
    );
    const inside = Object.entries(schema.properties ?? {}).flatMap(([key, inner]) =>
      fields[key] === undefined ? [] : faults(inner, fields[key], `${path}.${key}`)
    );
    return [...missing, ...inside];
  }
  const good = schema.type === "string"
    ? typeof value === "string" && (schema.pattern === undefined || new RegExp(schema.pattern).test(value)) &&
      value.length >= (schema.minLength ?? 0)
    : typeof value === "number" && (schema.type === "number" || Number.isInteger(value)) &&
      value >= (schema.minimum ?? -Infinity) && value <= (schema.maximum ?? Infinity);
  return good && (schema.enum?.includes(value) ?? true) ? [] : [`${path}: ${JSON.stringify(value)}`];
}

Deno.test("the resource accepts the sample and the form published before, and rejects what is wrong", () => {
  const [crd] = documents("crd.yaml"), [sample] = documents("sample.yaml");
  const [version] = [...crd?.["spec"]?.["versions"] ?? []];
  const schema = version?.["schema"]?.["openAPIV3Schema"] as unknown as Schema;
  assert.deepEqual(faults(schema, sample), []);
  const spec = { baseModel: "m", algorithm: "online-sgd-ema", outputRegistry: "r" };
  assert.deepEqual(faults(schema, { spec }), []);
  assert.deepEqual(faults(schema, { spec: { ...spec, checkpoint: { interval: "5m", minSamples: 1 } } }), []);
  for (
    const [field, value] of [
      ["versionPolicy", "newest"],
      ["versionPolicy", "pinned:"],
      ["algorithm", "adam"],
      ["baseModel", undefined],
      ["checkpoint", { minSamples: 0 }],
      ["checkpoint", { stabilityPlccDelta: -1 }],
    ] as const
  ) {
    assert.equal(faults(schema, { spec: { ...spec, [field]: value } }).length, 1, `${field} ${JSON.stringify(value)}`);
  }
  for (const policy of ["latest", "latest-stable", "pinned:42"]) {
    assert.deepEqual(faults(schema, { spec: { ...spec, versionPolicy: policy } }), []);
  }
  const properties = schema.properties?.["spec"]?.properties;
  assert.equal(properties?.["checkpoint"]?.properties?.["interval"]?.default, "10m");
  assert.equal(properties?.["checkpoint"]?.properties?.["minSamples"]?.default, 1000);
  assert.deepEqual([...version?.["additionalPrinterColumns"] ?? []].map((column) => `${column["name"]}`), [
    "Phase",
    "Samples",
    "ModelVersion",
    "Age",
  ]);
});
