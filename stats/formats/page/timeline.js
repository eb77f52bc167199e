// Live memory over time, a lane for each kind on one axis. Dragging chooses an interval of it; of a recording a moment.

class Timeline {
  // `choose` is called with [from_s, to_s], `chooseMoment` with a number of scope.moments: undefined for none.
  constructor(place, help, choose, chooseMoment) {
    this.canvas = make('canvas', {role: 'img'});
    this.none = make('p', {class: 'note'}, 'No kind of memory in this report has a course over time.');
    Object.assign(this, {help, choose, chooseMoment});
    place.append(this.canvas, this.none);
    this.canvas.addEventListener('keydown', event => this.key(event));
    this.canvas.addEventListener('pointerdown', event => this.begin(event));
    this.canvas.addEventListener('pointermove', event => this.move(event));
    this.canvas.addEventListener('pointerup', () => this.end());
    this.canvas.addEventListener('pointercancel', () => this.end());
    this.canvas.addEventListener('pointerleave', hideTip);
    this.canvas.addEventListener('dblclick', () => this.set(undefined));
  }

  show(scope) {
    this.lanes = Object.entries(scope.kinds).filter(([, kind]) => kind.live_over_time)
      .map(([name, kind]) => ({name, kind, levels: kind.live_over_time}));
    this.peak = scope.single ? 'peak' : 'peak of one process';
    this.end_s = Math.max(scope.wall_s, 1e-6);
    this.range = this.moment = undefined;
    this.moments = scope.moments;
    const how = this.moments.length
      ? ['click, drag or use the arrow keys to choose a moment', 'show what was live then']
      : ['drag to choose a time', 'follow'];
    this.help.textContent = `${how[0]}; the call sites below ${how[1]}`;
    this.canvas.tabIndex = this.moments.length ? 0 : -1;
    this.canvas.setAttribute('aria-label', `live memory of each kind over time: ${how[0]}`);
    this.canvas.hidden = !this.lanes.length;
    this.none.hidden = Boolean(this.lanes.length);
    this.draw();
  }

  x(at_s) { return at_s / this.end_s * this.canvas.clientWidth; }
  timeAt(event) {
    const box = this.canvas.getBoundingClientRect();
    return Math.max(0, Math.min(1, (event.clientX - box.left) / box.width)) * this.end_s;
  }

  draw() {
    if (!this.lanes?.length) return;
    const kLane = 74, kAxis = 20;
    const context = prepared(this.canvas, this.lanes.length * kLane + kAxis);
    const width = this.canvas.clientWidth, bottom = this.lanes.length * kLane;
    this.drawAxis(context, width, bottom);
    this.lanes.forEach((lane, i) => this.drawLane(context, lane, i * kLane, kLane - 8));
    if (this.moment !== undefined) {
      context.fillStyle = theme.color('accent');
      context.fillRect(this.x(this.moments[this.moment].at_s) - 1, 0, 2, bottom);
    }
    if (!this.range) return;
    const [from, to] = this.range.map(at_s => this.x(at_s));
    context.fillStyle = theme.color('shade');
    context.fillRect(0, 0, from, bottom);
    context.fillRect(to, 0, width - to, bottom);
    context.fillStyle = theme.color('accent');
    context.fillRect(from - 1, 0, 2, bottom);
    context.fillRect(to - 1, 0, 2, bottom);
  }

  drawAxis(context, width, bottom) {
    const wanted = Math.max(2, Math.floor(width / 110)), rough = this.end_s / wanted;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(of => of * power).find(of => of >= rough);
    const digits = Math.max(0, -Math.floor(Math.log10(step)));
    context.font = theme.color('small_font');
    for (let i = 0; i * step <= this.end_s; ++i) {
      const x = this.x(i * step);
      context.fillStyle = theme.color('line');
      context.fillRect(x, 0, 1, bottom);
      context.fillStyle = theme.color('faint');
      if (x < width - 40) context.fillText(`${(i * step).toFixed(digits)} s`, x + 3, bottom + 9);
    }
  }

  // Solid: what was live all through the interval; pale: what was live at its end.
  drawLane(context, {name, kind, levels}, top, height) {
    const kLabel = 17, floor = top + height, room = height - kLabel;
    const most = Math.max(kind.peak_bytes, greatest(levels.last, value => value), 1);
    const y = value => floor - value / most * room;
    const step = which => {
      context.beginPath();
      context.moveTo(this.x(levels.start_s), floor);
      levels[which].forEach((value, i) => {
        context.lineTo(this.x(levels.start_s + i * levels.interval_s), y(value));
        context.lineTo(this.x(levels.start_s + (i + 1) * levels.interval_s), y(value));
      });
      const end = Math.max(this.x(levels.start_s + levels.last.length * levels.interval_s), this.x(this.end_s));
      context.lineTo(end, y(levels[which].at(-1) ?? 0));
      context.lineTo(end, floor);
    };
    context.fillStyle = kindColor(name);
    context.globalAlpha = 0.3;
    step('last');
    context.fill();
    context.globalAlpha = 0.8;
    step('least');
    context.fill();
    context.globalAlpha = 1;
    if (kind.peak_at_s !== undefined) {
      context.beginPath();
      context.arc(this.x(kind.peak_at_s), y(kind.peak_bytes), 3, 0, 7);
      context.fill();
    }
    context.fillStyle = theme.color('line');
    context.fillRect(0, floor, this.canvas.clientWidth, 1);
    context.font = theme.color('label_font');
    context.fillStyle = theme.color('text');
    context.fillText(name, 4, top + 9);
    const named = context.measureText(name).width;
    context.font = theme.color('small_font');
    context.fillStyle = theme.color('faint');
    const amounts = `${this.peak} ${bytes(kind.peak_bytes)}   at the end ${bytes(kind.live_bytes)}`;
    context.fillText(amounts, named + 14, top + 9);
  }

  begin(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.from_s = this.timeAt(event);
    this.range = undefined;
    if (this.moments.length) this.setMoment(this.nearest(this.from_s));
  }
  move(event) {
    const at_s = this.timeAt(event);
    showTip(event, make('b', {}, `at ${seconds(at_s)}`), ...this.lanes.map(lane => make('div', {},
      `${lane.name}  ${bytes(levelAt(lane.levels, at_s, 'last'))}`)));
    if (this.from_s === undefined) return;
    if (this.moments.length) return this.setMoment(this.nearest(at_s));
    this.range = [Math.min(this.from_s, at_s), Math.max(this.from_s, at_s)];
    this.draw();
  }
  end() {
    if (this.from_s === undefined) return;
    this.from_s = undefined;
    if (this.moments.length) return;
    const wide_enough = this.range && this.x(this.range[1]) - this.x(this.range[0]) > 4;
    this.set(wide_enough ? this.range : undefined);
  }
  // An interval, or neither that nor a moment.
  set(range) {
    this.range = range;
    this.setMoment(undefined);
    this.choose(range);
  }

  nearest(at_s) {
    const distance = i => Math.abs(this.moments[i].at_s - at_s);
    return this.moments.reduce((best, _, i) => distance(i) < distance(best) ? i : best, 0);
  }
  setMoment(moment) {
    const is_other = moment !== this.moment;
    this.moment = moment;
    this.draw();
    if (is_other) this.chooseMoment(moment);
  }
  key(event) {
    if (!this.moments.length) return;
    const last = this.moments.length - 1, now = this.moment;
    const to = {ArrowLeft: (now ?? last + 1) - 1, ArrowRight: (now ?? -1) + 1, Home: 0, End: last}[event.key];
    if (to === undefined) return;
    this.setMoment(Math.max(0, Math.min(to, last)));
    event.preventDefault();
  }
}
