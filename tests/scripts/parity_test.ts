/** The comparison of our message table with the peer's: each kind of difference is seen, and only listed ones pass. */
import assert from "node:assert/strict";
import { compareTypes, type OurTypes, type PeerTypes } from "../../scripts/lib/parity.ts";
import { defaulted, optional, required, struct } from "../../src/wire/ipc/struct.ts";

const OURS: OurTypes = {
  version: 1,
  methods: ["A", "B"],
  structs: [struct("Message", { id: required("int"), note: optional("str"), list: defaulted("list[str]", []) })],
};

const PEER: PeerTypes = {
  version: 1,
  methods: ["B", "A"],
  structs: {
    Message: [["list", "list[str]", { value: [] }], ["id", "int", { required: true }], ["note", "str|nil", {
      value: null,
    }]],
  },
};

Deno.test("equal tables have no differences, in whichever order", () => {
  assert.deepEqual(compareTypes(OURS, PEER, []), []);
});

Deno.test("each kind of difference is reported with both sides", () => {
  const peer: PeerTypes = {
    version: 2,
    methods: ["A", "C"],
    structs: {
      Message: [["id", "float", { value: 0 }], ["note", "str|nil", { required: true }], ["more", "int", {
        required: true,
      }]],
      Other: [],
    },
  };
  assert.deepEqual(compareTypes(OURS, peer, []).sort(), [
    "default of Message.id: ours required, peer 0",
    "default of Message.note: ours null, peer required",
    "field of Message: list: only ours",
    "field of Message: more: only the peer's",
    "message Other: only the peer's",
    "method B: only ours",
    "method C: only the peer's",
    "type of Message.id: ours int, peer float",
    "version: ours 1, peer 2",
  ]);
});

Deno.test("a listed difference passes, and a listed one that is not there is reported", () => {
  const peer = { ...PEER, methods: ["A", "B", "C"] };
  const listed = { what: "method C: only the peer's", reason: "later" };
  assert.deepEqual(compareTypes(OURS, peer, [listed]), []);
  assert.deepEqual(compareTypes(OURS, PEER, [listed]), ["no longer true: method C: only the peer's"]);
});
