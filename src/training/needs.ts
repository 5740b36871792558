/** Permissions that the settings of a trainer ask for: to be baked, and to be named at the start when they are missing. */
import { dirname } from "node:path";
import { bindingPath } from "../runtime/socket_node.ts";
import type { Need } from "../settings/grants.ts";
import { TRAINING_SETTINGS, type TrainSettings } from "./settings.ts";

/** What `feedback` will touch: the trainer's socket. */
export function feedbackNeeds(socket: string): Need[] {
  const setting = TRAINING_SETTINGS.socket.name;
  return [
    { setting, permission: "net", target: `unix:${socket}` },
    { setting, permission: "read", target: socket },
    { setting, permission: "write", target: socket },
  ];
}

/** Everything that a trainer with these settings will touch. */
export function trainNeeds(settings: TrainSettings): Need[] {
  const { socket, checkpointDir, http, basePath, gateFixtures } = settings;
  const needs: Need[] = [];
  const add = (setting: { readonly name: string }, permission: Need["permission"], target: string) =>
    needs.push({ setting: setting.name, permission, target });
  // Probed and bound under two names; the claim file lies beside them.
  add(TRAINING_SETTINGS.socket, "net", `unix:${socket}`);
  add(TRAINING_SETTINGS.socket, "net", `unix:${bindingPath(socket)}`);
  add(TRAINING_SETTINGS.socket, "read", dirname(socket));
  add(TRAINING_SETTINGS.socket, "write", dirname(socket));
  add(TRAINING_SETTINGS.socket, "sys", "umask");
  add(TRAINING_SETTINGS.checkpointDir, "read", checkpointDir);
  add(TRAINING_SETTINGS.checkpointDir, "write", checkpointDir);
  if (basePath !== "") add(TRAINING_SETTINGS.basePath, "read", basePath);
  if (gateFixtures !== "") add(TRAINING_SETTINGS.gateFixtures, "read", gateFixtures);
  if (http !== undefined) {
    const host = http.hostname.includes(":") ? `[${http.hostname}]` : http.hostname;
    add(TRAINING_SETTINGS.httpAddr, "net", `${host}:${http.port}`);
  }
  return needs;
}
