/** Images that a person attaches to a message: by paste, by drop or from a list of files. */
import type { ImageAttachment } from "@quarterdeck/client";
import { bytes } from "./format.ts";
import { toasts } from "./toasts.svelte.ts";

/** The size of one image; a frame of the protocol carries 32 MiB in all. */
const IMAGE_BYTES_MAX = 6_000_000;
const IMAGES_MAX = 8;

/** The types of images a page may show; others, drawings with scripts among them, are not. */
export function isShowable(mediaType: string): boolean {
  return /^image\/(png|jpe?g|gif|webp|avif|bmp)$/i.test(mediaType);
}

/** Those of the files that can be attached to a message with `already` images; a toast says why one cannot. */
export async function readImages(files: Iterable<File>, already: number): Promise<ImageAttachment[]> {
  const images: ImageAttachment[] = [];
  for (const file of files) {
    const problem = problemWith(file, already + images.length);
    if (problem === undefined) images.push({ data: await base64(file), media_type: file.type });
    else toasts.add(problem, { kind: "error" });
  }
  return images;
}

/** The files of a paste; text is left to the field. */
export function pastedFiles(event: ClipboardEvent): File[] {
  const files = [...(event.clipboardData?.files ?? [])];
  if (files.length > 0) event.preventDefault();
  return files;
}

export function droppedFiles(event: DragEvent): File[] {
  event.preventDefault();
  return [...(event.dataTransfer?.files ?? [])];
}

function problemWith(file: File, already: number): string | undefined {
  if (!isShowable(file.type)) return `${file.name || "The file"} is not an image that agents can read. Upload other files under Files and name them with @.`;
  if (file.size > IMAGE_BYTES_MAX) {
    return `${file.name || "The image"} is ${bytes(file.size)}; the limit is ${bytes(IMAGE_BYTES_MAX)}. Make it smaller.`;
  }
  return already >= IMAGES_MAX ? `A message can have at most ${IMAGES_MAX} images.` : undefined;
}

function base64(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).replace(/^data:[^,]*,/, ""));
    reader.onerror = () => reject(reader.error ?? new Error(`${file.name} could not be read`));
    reader.readAsDataURL(file);
  });
}
