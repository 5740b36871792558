/**
 * A connected byte stream, plain or encrypted. Deno's own sockets do all but one thing: a client certificate on a connection that
 * began in the clear, as NATS has it, needs `node:tls`.
 */
import { connect as connectNode, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";

/** A byte stream. After {@link close}, reads end and writes fail. */
export interface ByteSocket {
  /** Reads into the buffer; the number of bytes, or null at the end. Rejects when the connection breaks. */
  read(into: Uint8Array): Promise<number | null>;
  /** Resolves when all bytes are written. */
  write(bytes: Uint8Array): Promise<void>;
  close(): void;
}

/** Where to connect. */
export interface SocketAddress {
  readonly hostname: string;
  readonly port: number;
}

/** What is trusted, and what we show. All PEM texts. */
export interface TlsMaterial {
  /** Authorities beside those of the system. */
  readonly ca: string | undefined;
  readonly client: { readonly cert: string; readonly key: string } | undefined;
}

/** A connection that can still be encrypted, once. */
export interface UpgradableSocket extends ByteSocket {
  /** Encrypts it; the peer's certificate must be for `hostname`. This object must not be used afterwards. */
  upgrade(hostname: string, material: TlsMaterial): Promise<ByteSocket>;
}

/** Connects in the clear. `clientCertificate`: the upgrade will show one. */
export async function openSocket(address: SocketAddress, clientCertificate: boolean): Promise<UpgradableSocket> {
  if (clientCertificate) return await openNodeSocket(address);
  const connection = await Deno.connect(address);
  connection.setNoDelay(true);
  return {
    ...overDeno(connection),
    async upgrade(hostname, { ca }) {
      const caCerts = ca === undefined ? [] : [ca];
      const encrypted = await Deno.startTls(connection, { hostname, caCerts });
      try {
        await encrypted.handshake();
      } catch (thrown) {
        encrypted.close();
        throw thrown;
      }
      return overDeno(encrypted);
    },
  };
}

function overDeno(connection: Deno.Conn): ByteSocket {
  let closed = false;
  return {
    read: (into) => connection.read(into),
    async write(bytes) {
      for (let done = 0; done < bytes.length;) {
        done += await connection.write(done === 0 ? bytes : bytes.subarray(done));
      }
    },
    close() {
      if (closed) return;
      closed = true;
      try {
        connection.close();
      } catch {
        // It was taken over by an upgrade, or the other side was faster.
      }
    },
  };
}

function openNodeSocket({ hostname, port }: SocketAddress): Promise<UpgradableSocket> {
  return new Promise((resolve, reject) => {
    const socket = connectNode(port, hostname);
    socket.setNoDelay(true);
    // This listener stays: an error without one would end the process.
    socket.on("error", reject);
    socket.once("connect", () => {
      const stream = overNode(socket);
      resolve({
        ...stream,
        upgrade(servername, { ca, client }) {
          stream.detach();
          return new Promise((resolveTls, rejectTls) => {
            const encrypted = connectTls({
              socket,
              servername,
              rejectUnauthorized: true,
              ...(ca === undefined ? {} : { ca: [ca] }),
              ...client,
            });
            encrypted.on("error", rejectTls);
            encrypted.once("close", () => rejectTls(new Error("the connection was closed during the TLS handshake")));
            encrypted.once("secureConnect", () => {
              if (encrypted.authorized) resolveTls(overNode(encrypted));
              else rejectTls(encrypted.authorizationError ?? new Error("the certificate is not trusted"));
            });
          });
        },
      });
    });
  });
}

/** A node socket as a byte stream: what it emits waits here until it is read. */
function overNode(socket: Socket): ByteSocket & { detach(): void } {
  const waiting: Uint8Array[] = [];
  let ended = false, failure: Error | undefined;
  let wake: (() => void) | undefined;
  const signal = () => {
    wake?.();
    wake = undefined;
  };
  const onData = (bytes: Uint8Array) => {
    waiting.push(bytes);
    signal();
  };
  socket.on("data", onData);
  socket.on("error", (error: Error) => {
    failure = error;
    signal();
  });
  socket.on("close", () => {
    ended = true;
    signal();
  });
  return {
    async read(into) {
      while (waiting.length === 0) {
        if (failure !== undefined) throw failure;
        if (ended) return null;
        await new Promise<void>((resolve) => wake = resolve);
      }
      const first = waiting[0] as Uint8Array;
      const count = Math.min(first.length, into.length);
      into.set(first.subarray(0, count));
      if (count === first.length) waiting.shift();
      else waiting[0] = first.subarray(count);
      return count;
    },
    write: (bytes) =>
      new Promise((resolve, reject) =>
        socket.write(bytes, (error) => error instanceof Error ? reject(error) : resolve())
      ),
    close: () => void socket.destroy(),
    detach: () => void socket.off("data", onData),
  };
}
