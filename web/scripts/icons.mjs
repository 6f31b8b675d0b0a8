// Draws the icons of the installed app from public/icon.svg: `node scripts/icons.mjs`, after a change of the mark.
// The results are committed, so that building the app needs no browser.
import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { chromium } from "@playwright/test";

const directory = fileURLToPath(new URL("../public/", import.meta.url));
const mark = await readFile(`${directory}icon.svg`, "utf8");

/** The strokes alone, moved towards the middle of the square and scaled. */
function strokes(svg, scale) {
  const group = svg.slice(svg.indexOf("<g"), svg.indexOf("</g>") + 4);
  return `<g transform="translate(32 32) scale(${scale}) translate(-32 -32)">${group}</g>`;
}

const background = mark.match(/fill="(#[0-9a-f]+)"/)?.[1];
const square = (inner) => `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 64 64">${inner}</svg>`;
const filled = `<rect width="64" height="64" fill="${background}"/>`;

const icons = [
  { file: "icon-192.png", size: 192, svg: mark },
  { file: "icon-512.png", size: 512, svg: mark },
  // Systems cut shapes out of it: all that matters is within the middle four fifths.
  { file: "icon-maskable-512.png", size: 512, svg: square(filled + strokes(mark, 0.8)) },
  // iOS rounds the corners itself and shows what is transparent as black.
  { file: "apple-touch-icon.png", size: 180, svg: square(filled + strokes(mark, 0.92)) },
  // Only its shape counts: the system colours it.
  { file: "badge-96.png", size: 96, svg: square(strokes(mark, 1.3)) },
];

const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
try {
  for (const { file, size, svg } of icons) {
    const page = await browser.newPage({ viewport: { width: size, height: size } });
    const sized = svg.replace("<svg ", `<svg width="${size}" height="${size}" style="display:block" `);
    await page.setContent(`<!doctype html><body style="margin:0">${sized}</body>`);
    await writeFile(directory + file, await page.screenshot({ omitBackground: true }));
    await page.close();
    console.log(file);
  }
} finally {
  await browser.close();
}
