/** A headless Chromium, driven over its DevTools protocol; as much of it as the page tests need. */
import { ManagedProcess, TestFolder } from "../../harness/process.ts";

interface Message {
  readonly id?: number;
  readonly method?: string;
  readonly params?: Record<string, unknown>;
  readonly result?: Record<string, unknown>;
  readonly error?: { readonly message: string };
}

/** A browser with one page. Use it with `await using`. */
export class BrowserPage implements AsyncDisposable {
  /** What the page said on its console, was refused by its policy, or threw. */
  readonly complaints: string[] = [];
  readonly #folder: TestFolder;
  readonly #process: ManagedProcess;
  #socket: WebSocket | undefined;
  #session: string | undefined;
  #next = 1;
  readonly #waiting = new Map<number, PromiseWithResolvers<Record<string, unknown>>>();
  #loaded = Promise.withResolvers<void>();

  private constructor(folder: TestFolder, process: ManagedProcess) {
    this.#folder = folder;
    this.#process = process;
  }

  /** Starts `chromium`; its fonts lie beside it. */
  static async start(chromium: string): Promise<BrowserPage> {
    const home = chromium.slice(0, chromium.lastIndexOf("/"));
    const folder = new TestFolder();
    const fonts = `<fontconfig><dir>${home}/fonts/fonts</dir><cachedir>${folder.file("fonts")}</cachedir></fontconfig>`;
    Deno.writeTextFileSync(folder.file("fonts.conf"), `<?xml version="1.0"?>${fonts}`);
    const gpu = ["--in-process-gpu", "--use-gl=angle", "--use-angle=swiftshader"];
    const process = ManagedProcess.start({
      name: "chromium",
      command: [
        chromium,
        "--headless=shell",
        // The page is ours and the machine is a test's; a sandbox needs rights that containers do not have.
        "--no-sandbox",
        "--no-zygote",
        "--single-process",
        ...gpu,
        "--remote-debugging-port=0",
        `--user-data-dir=${folder.file("profile")}`,
        "about:blank",
      ],
      env: { FONTCONFIG_FILE: folder.file("fonts.conf"), HOME: folder.path },
    });
    const page = new BrowserPage(folder, process);
    const line = await process.line("DevTools", (text) => text.startsWith("DevTools listening on "));
    await page.#connect(line.slice("DevTools listening on ".length).trim());
    return page;
  }

  async #connect(url: string): Promise<void> {
    const socket = new WebSocket(url);
    this.#socket = socket;
    const opened = Promise.withResolvers<void>();
    socket.onopen = () => opened.resolve();
    socket.onerror = () => opened.reject(new Error("no connection to the browser"));
    socket.onmessage = ({ data }) => this.#receive(JSON.parse(data as string) as Message);
    await opened.promise;
    const { targetId } = await this.call("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await this.call("Target.attachToTarget", { targetId, flatten: true });
    this.#session = sessionId as string;
    for (const domain of ["Page", "Runtime", "Log"]) await this.call(`${domain}.enable`);
  }

  #receive(message: Message): void {
    if (message.id !== undefined) {
      const waiting = this.#waiting.get(message.id);
      this.#waiting.delete(message.id);
      if (message.error !== undefined) waiting?.reject(new Error(message.error.message));
      else waiting?.resolve(message.result ?? {});
    } else if (message.method === "Page.loadEventFired") this.#loaded.resolve();
    else if (["Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"].includes(message.method ?? "")) {
      this.complaints.push(JSON.stringify(message.params));
    }
  }

  /** Calls a method of the protocol. */
  call(method: string, params: Record<string, unknown> = {}): Promise<Record<string, unknown>> {
    const id = this.#next++;
    const waiting = Promise.withResolvers<Record<string, unknown>>();
    this.#waiting.set(id, waiting);
    this.#socket?.send(JSON.stringify({ id, method, params, sessionId: this.#session }));
    return waiting.promise;
  }

  /** Loads a page and waits until it is there. */
  async load(url: string): Promise<void> {
    this.#loaded = Promise.withResolvers();
    await this.call("Page.navigate", { url });
    await this.#loaded.promise;
  }

  /** The value of an expression, evaluated in the page. */
  async evaluate<T>(expression: string): Promise<T> {
    const answer = await this.call("Runtime.evaluate", { expression, returnByValue: true });
    if (answer["exceptionDetails"] !== undefined) throw new Error(JSON.stringify(answer["exceptionDetails"]));
    return (answer["result"] as { value: T }).value;
  }

  /** A picture of what is seen, as PNG. */
  async screenshot(): Promise<Uint8Array<ArrayBuffer>> {
    const { data } = await this.call("Page.captureScreenshot", { format: "png" });
    return Uint8Array.fromBase64(data as string);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const socket = this.#socket;
    if (socket !== undefined && socket.readyState !== WebSocket.CLOSED) {
      const closed = new Promise((resolve) => socket.onclose = resolve);
      socket.close();
      this.#process.signal("SIGKILL");
      await closed;
    }
    await this.#process[Symbol.asyncDispose]();
    this.#folder[Symbol.dispose]();
  }
}
