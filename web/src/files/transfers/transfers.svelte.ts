import { toast } from "../../lib/app.svelte.ts";
import { errorText } from "../../lib/format.ts";
import { confirm } from "../../lib/dialogs.svelte.ts";
import { onMachine } from "../machine.ts";
import { bytesAddress, join, nameOf } from "../paths.ts";

/** Uploads at a time; the rest waits. */
const UPLOADS_MAX = 2;

/** A larger file is left to the browser, which writes it to the disk as it comes and shows its own progress. */
const DOWNLOAD_BYTES_MAX = 256 << 20;

export type TransferStatus = "waiting" | "running" | "finishing" | "done" | "failed" | "cancelled";

/** A file on its way. */
export class Transfer {
  readonly id = crypto.randomUUID();
  readonly direction: "upload" | "download";
  readonly path: string;
  status = $state<TransferStatus>("waiting");
  sent = $state(0);
  total = $state(0);
  error = $state<string>();
  begin: () => void = () => {};
  #request: XMLHttpRequest | undefined;

  constructor(direction: "upload" | "download", path: string, total: number) {
    this.direction = direction;
    this.path = path;
    this.total = total;
  }

  get isOver(): boolean {
    return this.status === "done" || this.status === "failed" || this.status === "cancelled";
  }

  get name(): string {
    return nameOf(this.path);
  }

  cancel(): void {
    if (this.isOver) return;
    this.status = "cancelled";
    this.#request?.abort();
  }

  /** Sends a request and follows it. Resolves to whether it was done. */
  run(request: XMLHttpRequest, body?: Blob): Promise<boolean> {
    this.#request = request;
    this.status = "running";
    this.error = undefined;
    this.sent = 0;
    const moving = this.direction === "upload" ? request.upload : request;
    moving.addEventListener("progress", (event) => {
      this.sent = event.loaded;
      if (event.lengthComputable) this.total = event.total;
    });
    // All bytes are there, but the machine may still have to write them, or to ask somebody whether it may.
    request.upload.addEventListener("load", () => {
      if (this.status === "running") this.status = "finishing";
    });
    return new Promise((done) => {
      request.addEventListener("loadend", () => {
        const isDone = request.status >= 200 && request.status < 300;
        if (this.status !== "cancelled") {
          this.status = isDone ? "done" : "failed";
          if (!isDone) this.error = reasonOf(request);
        }
        done(isDone);
      });
      request.send(body ?? null);
    });
  }
}

function reasonOf(request: XMLHttpRequest): string {
  if (request.status === 0) return "The connection broke. Try again.";
  if (request.responseType !== "blob") {
    try {
      const answer: unknown = JSON.parse(request.responseText);
      if (typeof answer === "object" && answer !== null && "error" in answer) return String(answer.error);
    } catch {
      // A proxy's page says nothing to a person.
    }
  }
  return `The hub answered ${request.status}.`;
}

/** A file that somebody chose or dropped, and where it goes below the directory. */
export interface ChosenFile {
  file: File;
  path: string;
}

/** Uploads and downloads of this browser. They go on while somebody looks at other pages. */
class Transfers {
  list = $state<Transfer[]>([]);

  get active(): number {
    return this.list.filter((transfer) => !transfer.isOver).length;
  }

  clear(): void {
    this.list = this.list.filter((transfer) => !transfer.isOver);
  }

  async upload(sessionId: string, directory: string, chosen: ChosenFile[]): Promise<void> {
    for (const { file, path } of chosen) {
      const target = join(directory, path);
      const isWanted = await this.#mayReplace(sessionId, target);
      if (isWanted) this.#addUpload(sessionId, target, file);
    }
  }

  async download(sessionId: string, path: string, size: number): Promise<void> {
    if (size > DOWNLOAD_BYTES_MAX) {
      save(bytesAddress(sessionId, path), nameOf(path));
      return;
    }
    const transfer = this.#add(new Transfer("download", path, size));
    transfer.begin = () => void this.#download(transfer, sessionId, path);
    transfer.begin();
  }

  async #download(transfer: Transfer, sessionId: string, path: string): Promise<void> {
    const request = new XMLHttpRequest();
    request.open("GET", bytesAddress(sessionId, path));
    request.responseType = "blob";
    if (!(await transfer.run(request))) return;
    const address = URL.createObjectURL(request.response as Blob);
    save(address, nameOf(path));
    // The browser has begun to read it by then.
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  }

  async #mayReplace(sessionId: string, path: string): Promise<boolean> {
    try {
      const stat = await onMachine(sessionId, "fs.stat", { path });
      if (!stat.exists) return true;
      if (stat.is_dir) {
        toast(`A folder named ${path} already exists, so the file was not uploaded.`, { kind: "error" });
        return false;
      }
      return await confirm({
        title: `Replace ${nameOf(path)}?`,
        text: `${path} already exists. The upload replaces it.`,
        action: "Replace",
        danger: true,
      });
    } catch (error) {
      toast(`${path} was not uploaded: ${errorText(error)}`, { kind: "error" });
      return false;
    }
  }

  #addUpload(sessionId: string, path: string, file: File): void {
    const transfer = this.#add(new Transfer("upload", path, file.size));
    transfer.begin = () => {
      const request = new XMLHttpRequest();
      request.open("PUT", bytesAddress(sessionId, path, { create_parents: "true" }));
      request.setRequestHeader("content-type", "application/octet-stream");
      void transfer.run(request, file).then(() => this.#next());
    };
    this.#next();
  }

  #add(transfer: Transfer): Transfer {
    this.list.push(transfer);
    // What the list holds is watched, the object itself is not.
    return this.list[this.list.length - 1] ?? transfer;
  }

  #next(): void {
    const uploads = this.list.filter((transfer) => transfer.direction === "upload");
    const running = uploads.filter((transfer) => transfer.status === "running").length;
    const waiting = uploads.filter((transfer) => transfer.status === "waiting");
    waiting.slice(0, Math.max(0, UPLOADS_MAX - running)).forEach((transfer) => transfer.begin());
  }
}

export const transfers = new Transfers();

// They go on from page to page, but end with the app.
addEventListener("beforeunload", (event) => {
  if (transfers.active > 0) event.preventDefault();
});

function save(address: string, name: string): void {
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
}

/** Files of a drop, those in dropped folders too. */
export async function droppedFiles(data: DataTransfer): Promise<ChosenFile[]> {
  const entries = [...data.items].map((item) => item.webkitGetAsEntry()).filter((entry) => entry !== null);
  if (entries.length === 0) return [...data.files].map((file) => ({ file, path: file.name }));
  const found = await Promise.all(entries.map((entry) => filesOf(entry, "")));
  return found.flat();
}

async function filesOf(entry: FileSystemEntry, directory: string): Promise<ChosenFile[]> {
  const path = join(directory, entry.name);
  if (isFile(entry)) {
    const file = await new Promise<File>((done, failed) => entry.file(done, failed));
    return [{ file, path }];
  }
  if (!isDirectory(entry)) return [];
  const reader = entry.createReader();
  const inside: FileSystemEntry[] = [];
  // It gives some at a time, and nothing at the end.
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((done, failed) => reader.readEntries(done, failed));
    if (some.length === 0) break;
    inside.push(...some);
  }
  const found = await Promise.all(inside.map((one) => filesOf(one, path)));
  return found.flat();
}

function isFile(entry: FileSystemEntry): entry is FileSystemFileEntry {
  return entry.isFile;
}

function isDirectory(entry: FileSystemEntry): entry is FileSystemDirectoryEntry {
  return entry.isDirectory;
}
