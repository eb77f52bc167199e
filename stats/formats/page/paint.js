// Drawing: canvases at the screen's resolution, and the colours of kinds, in both themes.

const theme = {
  get dark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  },
  color: name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim(),
};

// A hue for each family of kinds: device:0 and device:1 are neighbours.
const kHues = {host: 214, device: 150, pinned: 32, opencl: 268, managed: 186, async: 100, graph: 330, array: 56,
               vmm: 78, registered: 14, external: 300};
function hueOf(kind) {
  const [family, number = 0] = kind.split(':');
  return (kHues[family] ?? 240) + 14 * (number % 6);
}
const kindColor = kind => `hsl(${hueOf(kind)} 50% ${theme.dark ? 56 : 46}%)`;

// Frames in the kind's hue; the same function has the same shade everywhere.
function frameColor(kind, name) {
  let hash = 0;
  for (let i = 0; i < name.length; ++i) hash = hash * 31 + name.charCodeAt(i) | 0;
  const light = (theme.dark ? 30 : 78) + (hash >> 4) % 6;
  return `hsl(${hueOf(kind) + hash % 13} ${theme.dark ? 34 : 52}% ${light}%)`;
}

// What grew is red and what shrank blue-green, the more of its memory the stronger; what is new or gone is strongest.
function changeColor(change, share) {
  const hues = {new: 4, grown: 4, shrunk: 184, gone: 184}, hue = hues[change];
  if (hue === undefined) return theme.color('same');
  const strength = change === 'new' || change === 'gone' ? 1 : 0.2 + 0.4 * Math.min(share, 1);
  const saturation = (hue === 4 ? 36 : 28) + 20 * strength;
  const light = theme.dark ? 26 + 12 * strength : 89 - 22 * strength;
  return `hsl(${hue} ${saturation}% ${light}%)`;
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
  const right = innerWidth - tip.offsetWidth - 4, below = event.clientY + 18;
  const above = Math.max(4, event.clientY - tip.offsetHeight - 10);
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, right))}px`;
  tip.style.top = `${below + tip.offsetHeight < innerHeight ? below : above}px`;
}
const hideTip = () => { document.getElementById('tip').hidden = true; };
