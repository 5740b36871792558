/** The variables that the reference does not have. A bad value of these stops the start. */
import { lenientFloat, listenAddress, ownInteger, path, versionPolicy, word } from "./kinds.ts";
import type { Variable } from "./variable.ts";

/** See {@link Variable}. */
export const ownVariables = {
  SIE_COMPAT: {
    ...word<"ours" | "reference">("ours", new Map([["reference", "reference"]])),
    fallbackText: "",
    area: "debug",
    ours: true,
    doc: "`reference` turns every deliberate difference off (docs/differences.md)",
    show: (s) => s.compat.reference ? "reference" : undefined,
  },
  SIE_NATS_CREDS_FILE: {
    ...path(),
    area: "nats",
    ours: true,
    doc: "Credentials file (JWT and seed); instead of user and password or nkey",
    show: (s) => s.nats.security.credsFile,
  },
  SIE_NATS_NKEY_FILE: {
    ...path(),
    area: "nats",
    ours: true,
    doc: "File with an nkey seed; instead of user and password or credentials",
    show: (s) => s.nats.security.nkeyFile,
  },
  SIE_NATS_TLS_CA: {
    ...path(),
    area: "nats",
    ours: true,
    doc: "Certificates (PEM) that the broker's must descend from; unset means those of the system",
    show: (s) => s.nats.security.tlsCaFile,
  },
  SIE_NATS_TLS_CERT: {
    ...path(),
    area: "nats",
    ours: true,
    doc: "Client certificate (PEM); goes together with `SIE_NATS_TLS_KEY`",
    show: (s) => s.nats.security.tlsClient?.certFile,
  },
  SIE_NATS_TLS_KEY: {
    ...path(),
    area: "nats",
    ours: true,
    doc: "Key (PEM) of the client certificate",
    show: (s) => s.nats.security.tlsClient?.keyFile,
  },
  SIE_BYTE_BUDGET: {
    ...ownInteger(268_435_456, 67_108_864),
    area: "dispatch",
    unit: "bytes",
    ours: true,
    doc: "Bytes that pulled messages and requests of local ingest may hold together before no more are taken",
    show: (s) => s.dispatch.byteBudget,
  },
  SIE_BATCH_TIME_FEEDBACK_SOCKET: {
    ...path(),
    area: "batch_time",
    ours: true,
    doc: "Socket of a trainer that learns what batches take (docs/training.md); unset: nothing is sent",
    show: (s) => s.batchTime.feedbackSocket,
  },
  SIE_BATCH_TIME_VERSIONS_DIR: {
    ...path(),
    area: "batch_time",
    ours: true,
    doc: "That trainer's folder of versions, to predict with; read only; unset: nothing is predicted",
    show: (s) => s.batchTime.versionsDir,
  },
  SIE_BATCH_TIME_POLICY: {
    ...versionPolicy("latest-stable"),
    area: "batch_time",
    ours: true,
    doc: "Which version predicts, unless `worker-sidecar train pin` says otherwise",
    show: (s) => s.batchTime.policy,
  },
  SIE_BATCH_TIME_MAX_MS: {
    ...lenientFloat(undefined, 0),
    area: "batch_time",
    unit: "ms",
    ours: true,
    doc: "Predicted time that a batch of more than one item may take; unset: no limit",
    show: (s) => s.batchTime.maxMs,
  },
  SIE_LOG_FORMAT: {
    ...word<"auto" | "json" | "text">("auto", new Map([["auto", "auto"], ["json", "json"], ["text", "text"]])),
    area: "log",
    ours: true,
    doc: "`json`: one object a line on stdout; `text`: readable lines on stderr; `auto`: text on a terminal, else JSON",
    show: (s) => s.log.format,
  },
  SIE_DEBUG_ADDR: {
    ...listenAddress({ hostname: "127.0.0.1", port: 9096 }),
    area: "debug",
    ours: true,
    doc: "Where `/debug/batches`, `/debug/batch-fixtures`, `/debug/limits` and `/debug/ready` listen",
    show: (s) => s.debug.address === undefined ? "off" : `${s.debug.address.hostname}:${s.debug.address.port}`,
  },
  SIE_TRACE_FILE: {
    ...path(),
    area: "debug",
    ours: true,
    doc: "File to which the event trace is appended, JSON lines without payloads; unset is off",
    show: (s) => s.debug.traceFile,
  },
} satisfies Record<string, Variable<unknown>>;
