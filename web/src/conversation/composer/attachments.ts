/** Images a person adds to a message: by paste, by drop or from a list of files. */
import type { ImageAttachment } from "@quarterdeck/client";
import { bytes } from "../../lib/format.ts";
import { isShowable } from "../tools/tools.ts";

/** What one image may have; a frame of the protocol carries 32 MiB in all. */
export const IMAGE_MAX = 6_000_000;
export const IMAGES_MAX = 8;

export interface Taken {
  images: ImageAttachment[];
  /** Why some were not taken. */
  problems: string[];
}

function read(file: File): Promise<ImageAttachment> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => {
      const url = typeof reader.result === "string" ? reader.result : "";
      resolve({ data: url.slice(url.indexOf(",") + 1), media_type: file.type });
    };
    reader.onerror = () => reject(reader.error ?? new Error("The file could not be read"));
    reader.readAsDataURL(file);
  });
}

export async function takeImages(files: readonly File[], already: number): Promise<Taken> {
  const taken: Taken = { images: [], problems: [] };
  for (const file of files) {
    if (!isShowable(file.type)) {
      taken.problems.push(`${file.name || "The file"} is no image an agent can see. Upload other files under Files and name them with @.`);
    } else if (file.size > IMAGE_MAX) {
      taken.problems.push(`${file.name || "The image"} has ${bytes(file.size)}; ${bytes(IMAGE_MAX)} is the most. Make it smaller.`);
    } else if (already + taken.images.length >= IMAGES_MAX) {
      taken.problems.push(`${IMAGES_MAX} images are the most for one message.`);
      break;
    } else {
      taken.images.push(await read(file));
    }
  }
  return taken;
}

/** The files in a paste or a drop. */
export function filesOf(transfer: DataTransfer | null): File[] {
  return transfer ? [...transfer.files] : [];
}
