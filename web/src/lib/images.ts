import type { ImageAttachment } from "@quarterdeck/client";

/** Together with the text it must fit into one frame, base64 and all. */
const BYTES_MAX = 8 * 1024 * 1024;
const TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/** The images among files that were pasted, dropped or picked. Throws with what is wrong with one. */
export async function readImages(files: Iterable<File>): Promise<ImageAttachment[]> {
  const images: ImageAttachment[] = [];
  for (const file of files) {
    if (!TYPES.includes(file.type)) throw new Error(`${file.name || "That"} is no image that agents can see (PNG, JPEG, GIF or WebP)`);
    if (file.size > BYTES_MAX) throw new Error(`${file.name || "The image"} is larger than 8 MB`);
    images.push({ data: await base64(file), media_type: file.type });
  }
  return images;
}

function base64(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).replace(/^data:[^,]*,/, ""));
    reader.onerror = () => reject(new Error(`${file.name} cannot be read`));
    reader.readAsDataURL(file);
  });
}

export function imageUrl(image: ImageAttachment): string {
  return `data:${image.media_type};base64,${image.data}`;
}
