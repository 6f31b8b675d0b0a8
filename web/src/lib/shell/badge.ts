/** The number that needs you, where it is seen while the page is not: title, favicon, and the icon of the installed app. */
const PLAIN_ICON = "/icon.svg";
const SIZE = 64;

let iconImage: Promise<HTMLImageElement> | undefined;
let shownCount = -1;

function loadIcon(): Promise<HTMLImageElement> {
  iconImage ??= new Promise((resolve, reject) => {
    const image = new Image(SIZE, SIZE);
    image.onload = () => resolve(image);
    image.onerror = () => reject(new Error("the icon cannot be loaded"));
    image.src = PLAIN_ICON;
  });
  return iconImage;
}

function draw(image: HTMLImageElement, count: number): string | undefined {
  const canvas = document.createElement("canvas");
  canvas.width = SIZE;
  canvas.height = SIZE;
  const pen = canvas.getContext("2d");
  if (!pen) return undefined;
  pen.drawImage(image, 0, 0, SIZE, SIZE);
  pen.fillStyle = "#c2410c";
  pen.beginPath();
  pen.arc(44, 44, 20, 0, Math.PI * 2);
  pen.fill();
  pen.fillStyle = "#ffffff";
  pen.font = "bold 30px system-ui, sans-serif";
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.fillText(count > 9 ? "9+" : String(count), 44, 46);
  return canvas.toDataURL("image/png");
}

async function showFavicon(count: number): Promise<void> {
  const link = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
  if (!link) return;
  const picture = count === 0 ? PLAIN_ICON : draw(await loadIcon(), count);
  if (!picture || count !== shownCount) return;
  link.type = count === 0 ? "image/svg+xml" : "image/png";
  link.href = picture;
}

export function showBadge(count: number): void {
  if (count === shownCount) return;
  shownCount = count;
  // Both are decoration: the title says the same, and a browser that cannot do them has no words for us.
  showFavicon(count).catch(() => undefined);
  if ("setAppBadge" in navigator) {
    (count > 0 ? navigator.setAppBadge(count) : navigator.clearAppBadge()).catch(() => undefined);
  }
}
