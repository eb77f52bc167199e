// The flame graph, an icicle: a box for each call, as wide as its memory, callers above what they call; kinds on top.

// A tree of {name, frame, kind, value, children, parent} and what `view.add` adds up. Frames of one function are one
// box.
function flameTree(rows, view, data) {
  const root = {name: 'all kinds', kind: '', value: 0, children: new Map()};
  const add = (node, row) => { node.value += view.weight(row), view.add(node, row); };
  const child = (parent, key, name, kind, frame) => {
    let node = parent.children.get(key);
    if (!node) parent.children.set(key, node = {name, kind, frame, value: 0, children: new Map(), parent});
    return node;
  };
  for (const row of rows) {
    if (!view.weight(row)) continue;
    add(root, row);
    let node = child(root, row.kind, row.kind, row.kind);
    add(node, row);
    const stack = stackOf(row, data);
    for (const frame of tellingFrames(stack).reverse()) {
      node = child(node, frame.key, frame.name, row.kind, frame);
      add(node, row);
    }
    if (stack.length) continue;
    const name = row.list ? '(other sites, left out)' : '(no call site)';
    add(child(node, name, name, row.kind), row);
  }
  for (const nodes = [root]; nodes.length;) {
    const node = nodes.pop();
    node.children = [...node.children.values()].sort((a, b) => b.value - a.value);
    nodes.push(...node.children);
  }
  return root;
}

const stackOf = (row, data) => row.frames === undefined ? [] : data.stacks[row.frames].map(id => data.frames[id]);
// Without the frames behind main, which are the C library's, and those of the interpreter between frames of Python.
function tellingFrames(stack) {
  const main = stack.findIndex(frame => frame.function === 'main' && !frame.python);
  const inside = main < 0 ? stack : stack.slice(0, main + 1);
  const is_interpreter = frame => !frame.python && /^(lib)?python[\d.]+(\.so|$)/.test(fileName(frame.module ?? ''));
  return inside.some(frame => frame.python) ? inside.filter(frame => !is_interpreter(frame)) : inside;
}

class FlameGraph {
  constructor(canvas, status, path) {
    Object.assign(this, {canvas, status, path, pattern: '', boxes: []});
    canvas.addEventListener('mousemove', event => this.hover(event));
    canvas.addEventListener('mouseleave', hideTip);
    canvas.addEventListener('click', event => this.zoom(this.at(event)));
    canvas.addEventListener('keydown', event => this.key(event));
  }

  show(root, view) {
    this.root = root, this.view = view;
    this.top = root.children.length === 1 ? root.children[0] : root;
    this.selected = undefined;
    this.draw();
  }
  highlight(pattern) {
    this.pattern = pattern;
    this.draw();
  }

  matches(node) {
    return this.pattern && (node.frame?.text ?? node.name.toLowerCase()).includes(this.pattern);
  }
  // The outermost boxes that match: each byte is in one of them.
  matched(node = this.top) {
    return this.matches(node) ? [node] : node.children.flatMap(child => this.matched(child));
  }

  draw() {
    const kRow = 19, kNarrowest = 1.5, kNarrowestParent = 28;
    this.canvas.hidden = !this.root?.value;
    this.showPath();
    if (!this.root?.value) {
      this.status.textContent = '';
      return;
    }
    const width = this.canvas.clientWidth;
    this.boxes = [];
    const place = (node, x, box_width, depth) => {
      this.boxes.push({node, x, y: depth * kRow, width: box_width, height: kRow - 1});
      let child_x = x;
      if (box_width < kNarrowestParent) return;  // zoomed to, it shows what is in it
      for (const child of node.children) {
        const child_width = child.value / node.value * box_width;
        if (child_width >= kNarrowest) place(child, child_x, child_width, depth + 1);
        child_x += child_width;
      }
    };
    place(this.top, 0, width, 0);
    const context = prepared(this.canvas, greatest(this.boxes, box => box.y) + kRow);
    context.font = theme.color('flame_font');
    for (const box of this.boxes) this.drawBox(context, box);
    this.say(this.selected ?? this.top);
  }

  drawBox(context, {node, x, y, width, height}) {
    const drawn = Math.max(width - 1, 1), matched = this.matches(node);
    context.globalAlpha = this.pattern && !matched ? 0.55 : 1;
    context.fillStyle = matched ? theme.color('match') : this.view.color(node);
    context.fillRect(x, y, drawn, height);
    if (node === this.selected) {
      context.strokeStyle = theme.color('accent');
      context.lineWidth = 2;
      context.strokeRect(x + 1, y + 1, Math.max(drawn - 2, 1), height - 2);
    }
    if (width > 26) {
      context.fillStyle = theme.color(matched ? 'on_match' : this.view.colorOn?.(node) ?? 'text');
      const text = width > 260 ? `${node.name}  ${this.view.label(node)}` : node.name;
      context.fillText(fitted(context, text, width - 8), x + 4, y + height / 2 + 1);
    }
    context.globalAlpha = 1;
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    return this.boxes.find(of => x >= of.x && x < of.x + of.width && y >= of.y && y < of.y + of.height)?.node;
  }
  hover(event) {
    const node = this.at(event);
    this.canvas.style.cursor = node ? 'pointer' : '';
    if (!node) return hideTip();
    const place = node.frame ? make('div', {class: 'mono'}, longPlace(node.frame)) : '';
    showTip(event, make('b', {}, node.name), place, make('div', {}, this.view.said(node, this.root)));
  }
  say(node) {
    this.status.replaceChildren(make('b', {}, node.name), '  ',
      node.frame?.file ? make('span', {class: 'mono'}, `${node.frame.place}  `) : '',
      figure('flame.value', node.value, this.view.said(node, this.root)));
    if (!this.pattern) return;
    const nodes = this.matched(), matched = sumOf(nodes, of => of.value);
    const text = `  search: ${this.view.found(nodes, this.top)}`;
    this.status.append(make('span', {class: 'matched'}, figure('flame.matched', matched, text)));
  }

  showPath() {
    const above = [];
    for (let node = this.top; node && this.root?.value; node = node.parent) above.unshift(node);
    this.path.replaceChildren(...above.length < 2 ? [] : above.flatMap((node, i) => [i ? ' \u203a ' : '',
      node === this.top ? make('b', {}, node.name)
                        : make('button', {type: 'button', onclick: () => this.zoom(node)}, node.name)]));
  }

  zoom(node) {
    if (!node) return;
    hideTip();
    // Once more on the top box goes back by one.
    this.top = node === this.top && node.parent ? node.parent : node;
    this.selected = this.top;
    this.draw();
  }
  reset() {
    this.top = this.root;
    this.selected = undefined;
    this.draw();
  }

  key(event) {
    const now = this.selected ?? this.top, around = now.parent?.children ?? [now];
    const beside = by => around[around.indexOf(now) + by];
    const inside = now !== this.top;
    const to = {ArrowDown: () => now.children[0], ArrowUp: () => inside ? now.parent : undefined,
                ArrowLeft: () => inside ? beside(-1) : undefined, ArrowRight: () => inside ? beside(1) : undefined,
                Home: () => this.top}[event.key];
    if (event.key === 'Enter') this.zoom(now);
    else if (event.key === 'Escape' && (this.top !== this.root || this.selected)) this.reset(), event.stopPropagation();
    else if (to) { this.selected = to() ?? now; this.draw(); }
    else return;
    event.preventDefault();
  }
}
