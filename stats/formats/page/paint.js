// Drawing: canvases at the screen's resolution, and the colours of kinds, in both themes.

const theme = {
  get dark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  },
  color: name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim(),
};

// A hue for each family of kinds: device:0 and device:1 are shades of one.
const kHues = {host: 214, device: 150, pinned: 32, opencl: 268, managed: 186, async: 100, graph: 330, array: 56, vmm: 78,
               registered: 14, external: 300};
function kindColor(kind, strength = 1) {
  const [family, number] = kind.split(':');
  const hue = (kHues[family] ?? 240) + 14 * (Number(number ?? 0) % 6);
  const saturation = 52 * strength;
  return `hsl(${hue} ${saturation}% ${theme.dark ? 56 : 48}%)`;
}

// Frames in the kind's hue; the same function has the same shade everywhere.
function frameColor(kind, name) {
  let hash = 0;
  for (let i = 0; i < name.length; ++i) hash = hash * 31 + name.charCodeAt(i) | 0;
  const [family, number] = kind.split(':');
  const hue = (kHues[family] ?? 240) + 14 * (Number(number ?? 0) % 6) + hash % 13;
  const light = (theme.dark ? 30 : 78) + (hash >> 4) % 6;
  return `hsl(${hue} ${theme.dark ? 34 : 52}% ${light}%)`;
}

// The context to draw with in CSS pixels, emptied.
function prepared(canvas, height) {
  const width = canvas.clientWidth, scale = devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext('2d');
  context.scale(scale, scale);
  context.textBaseline = 'middle';
  return context;
}

// As much of a text as fits.
function fitted(context, text, width) {
  const full = context.measureText(text).width;
  if (full <= width) return text;
  const letters = Math.floor(text.length * (width - 8) / full);
  return letters < 2 ? '' : `${text.slice(0, letters)}\u2026`;
}

function showTip(event, ...content) {
  const tip = document.getElementById('tip');
  tip.replaceChildren(...content);
  tip.hidden = false;
  const {innerWidth, innerHeight} = window, {offsetWidth, offsetHeight} = tip;
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - offsetWidth - 4))}px`;
  tip.style.top = `${event.clientY + 18 + offsetHeight < innerHeight ? event.clientY + 18
                                                                    : Math.max(4, event.clientY - offsetHeight - 10)}px`;
}
const hideTip = () => { document.getElementById('tip').hidden = true; };
