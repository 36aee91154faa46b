// The page: panels, controls, keys.
class Player {
  constructor(runs) {
    this.runs = runs;
    this.target = null;
    this.timed = runs.every(run => run.cost.timed && run.cost.time_us > 0);
    this.clock = runs.length > 1 && this.timed ? 'time' : 'step';
    const most = pick => Math.max(1, ...runs.map(pick));
    const ports = runs.flatMap(run => run.totals.map(t => Math.max(t.in, t.out))).sort((a, b) => a - b);
    this.scale = {
      link: most(run => Math.max(1, ...[...run.links.values()].map(link => link.bytes))),
      port: ports[ports.length - 1] || 1,
      uneven: ports[ports.length - 1] > 1.4 * ports[ports.length >> 1],
    };
    this.details = new Details(document.getElementById('details'));
    addPatterns(document.body, runs[0].world);
    this.addText();
    this.panels = runs.map((run, i) => this.addPanel(run, i));
    this.addLegend();
    this.addControls();
    this.details.clear();
    this.setClock(this.clock);
    this.openAt(location.hash);
  }

  addText() {
    const [run] = this.runs, names = this.runs.map(r => r.algorithm);
    const place = run.hostCount > 1 ? ` on ${run.hostCount} hosts` : '';
    const title = `${run.collective} by ${names.join(', ')}`;
    document.title = `${title}, ${run.world} ranks`;
    document.getElementById('title').textContent = title;
    const cost = this.runs.length > 1 ? '' : this.costText(run);
    document.getElementById('subtitle').textContent =
      `${plural(run.world, 'rank')}${place}` + (run.collective === 'barrier' ? '' : `, ${sizeText(run.bytes)}`) +
      (this.runs.length === 1 && run.collective !== 'barrier' ? ` in ${plural(run.blocks, 'block')}` : '') +
      (run.root >= 0 ? `, root ${run.root}` : '') + (run.elements ? `; the numbers are an example of ${run.elements} elements` : '') + cost;
    document.body.classList.toggle('several', this.runs.length > 1);
  }

  costText(run) {
    return `. ${plural(run.steps, 'step')}, predicted ${timeText(run.cost.time_us)} (simulated by the default cost model)`;
  }

  addPanel(run, index) {
    const panel = html('section', { class: 'panel card', 'data-algorithm': run.algorithm }, document.getElementById('stage'));
    if (this.runs.length > 1) html('h2', {}, panel, run.algorithm);
    const circle = new Circle(run, index, this.scale, (what, c, pinned) => this.details.select(what, c, pinned, this.shown.get(c)));
    panel.append(circle.root);
    const state = html('p', { class: 'state' }, panel);
    const facts = html('dl', { class: 'facts' }, panel);
    const busiest = run.busiest();
    this.addFact(facts, 'predicted', timeText(run.cost.time_us));
    this.addFact(facts, 'steps in a row', String(run.steps));
    // Blocks differ by a byte where the ranks do not divide the buffer.
    const equal = run.totals.every(port => Math.max(port.in, port.out) > 0.99 * busiest.bytes);
    if (busiest.bytes > 0) {
      const busy = this.addFact(facts, 'busiest port', `${sizeText(busiest.bytes)} (${equal ? 'each rank' : `rank ${busiest.rank}`})`);
      busy.classList.toggle('hot', this.scale.uneven && busiest.bytes > 0.66 * this.scale.port);
    }
    const holds = document.getElementById('holds');
    const box = html('details', {}, holds);
    if (this.runs.length === 1) box.setAttribute('open', '');
    html('summary', {}, box, this.runs.length > 1 ? `What every rank holds, by block: ${run.algorithm}` : 'What every rank holds, by block');
    return { circle, run, state, table: new Table(run, box) };
  }

  addFact(parent, name, text) {
    const group = html('div', {}, parent);
    html('dt', {}, group, name);
    return html('dd', {}, group, text);
  }

  addLegend() {
    const legend = document.getElementById('legend'), [run] = this.runs;
    for (let rank = 0; rank < run.world; ++rank) {
      const item = html('span', { class: 'item', 'data-legend': rank }, legend);
      const picture = svg('svg', { viewBox: '0 0 16 16', class: 'key' }, item);
      svg('rect', { width: 16, height: 16, rx: 3, fill: rankFill(rank) }, picture);
      html('span', {}, item, run.world <= 16 ? `of rank ${rank}` : String(rank));
    }
    const kinds = [];
    if (this.runs.some(r => r.events.some(e => e.passes))) kinds.push(['passing', 'passes through, not stored']);
    if (run.reduces) kinds.push(['complete', 'complete sum']);
    for (const [kind, text] of kinds) {
      const item = html('span', { class: 'item' }, legend);
      const picture = svg('svg', { viewBox: '0 0 16 16', class: 'key' }, item);
      svg('rect', { x: 1.5, y: 1.5, width: 13, height: 13, rx: 3, class: `edge ${kind}` }, picture);
      html('span', {}, item, text);
    }
  }

  addControls() {
    const on = (id, action) => document.getElementById(id).addEventListener('click', action);
    on('first', () => this.seek(this.range[0]));
    on('back', () => this.step(-1));
    on('play', () => this.toggle());
    on('next', () => this.step(1));
    on('last', () => this.seek(this.range[1]));
    this.slider = document.getElementById('slider');
    this.slider.addEventListener('input', () => { this.pause(); this.show(Number(this.slider.value)); });
    for (const clock of ['step', 'time']) on(`by-${clock}`, () => this.setClock(clock));
    document.getElementById('clocks').hidden = !this.timed;
    document.addEventListener('keydown', event => this.key(event));
    document.addEventListener('click', event => {
      if (!event.target.closest('#details, .controls, .circle, a, button, summary')) this.details.clear();
    });
    window.addEventListener('hashchange', () => this.openAt(location.hash));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const inside = event.target.closest('summary, button');
    const actions = { ' ': () => this.toggle(), ArrowRight: () => this.step(1), ArrowLeft: () => this.step(-1),
      Home: () => this.seek(this.range[0]), End: () => this.seek(this.range[1]), Escape: () => this.details.clear() };
    if (!actions[event.key] || (event.key === ' ' && inside)) return;
    event.preventDefault();
    actions[event.key]();
  }

  // "#3" or "#2.5": opens at that position.
  openAt(hash) {
    const position = parseFloat(hash.slice(1));
    if (Number.isFinite(position)) this.seek(position);
  }

  setClock(clock) {
    this.pause();
    this.clock = clock;
    for (const name of ['step', 'time']) document.getElementById(`by-${name}`).setAttribute('aria-pressed', String(name === clock));
    const ranges = this.runs.map(run => run.range(clock));
    this.range = [Math.min(...ranges.map(r => r[0])), Math.max(...ranges.map(r => r[1]))];
    this.stops = [...new Set(this.runs.flatMap(run => run.stops(clock)))].sort((a, b) => a - b);
    this.slider.min = this.range[0];
    this.slider.max = this.range[1];
    this.slider.disabled = this.range[0] === this.range[1];
    this.showPhases();
    this.show(this.range[0]);
  }

  // The phases over the slider; of one run only, since those of several differ.
  showPhases() {
    const track = document.getElementById('phases'), [first, last] = this.range;
    track.replaceChildren();
    if (this.runs.length > 1 || last === first) return;
    for (const span of this.runs[0].phaseSpans(this.clock)) {
      const part = html('span', { title: PHASES[span.name] || '' }, track, span.name);
      part.style.flexGrow = Math.max(0.001, (span.end - span.begin) / (last - first));
    }
  }

  show(position) {
    this.position = Math.min(this.range[1], Math.max(this.range[0], position));
    this.slider.value = this.position;
    this.shown = new Map();
    for (const { circle, run, table, state } of this.panels) {
      const own = Math.min(this.position, run.range(this.clock)[1]);
      const shown = { ...circle.update(own, this.clock), position: own, clock: this.clock };
      this.shown.set(circle, shown);
      table.update(shown);
      const names = run.phases(own, this.clock), done = own >= run.range(this.clock)[1];
      state.hidden = this.runs.length === 1;
      state.textContent = positionText(run, own, this.clock) + (names.length && !done ? ': ' + names.join(' and ') : '') +
        (done && this.clock === 'time' ? ', done' : '');
      if (this.runs.length === 1) {
        this.explain(done, names);
      }
    }
    const several = this.clock === 'time' && this.runs.length > 1;
    const text = several ? timeText(this.position) : positionText(this.longest(), this.position, this.clock);
    document.getElementById('now').textContent = text;
    this.slider.setAttribute('aria-valuetext', text);
    this.details.update(this.shown.get(this.details.circle));
  }

  explain(done, names) {
    const place = document.getElementById('explain');
    place.replaceChildren();
    if (done) place.append('Done: every rank has what the call promises.');
    for (const name of done ? [] : names) {
      html('strong', {}, place, name);
      place.append(`: ${PHASES[name]} `);
    }
    for (const part of document.querySelectorAll('#phases span')) part.classList.toggle('on', !done && names.includes(part.textContent));
  }

  longest() {
    return this.runs.reduce((a, b) => (b.depth > a.depth ? b : a));
  }

  seek(position) {
    this.pause();
    this.show(position);
  }

  step(direction) {
    if (this.target !== null) this.show(this.target);  // the step that is under way
    const next = direction > 0 ? this.stops.find(s => s > this.position + 1e-6) :
      [...this.stops].reverse().find(s => s < this.position - 1e-6);
    if (next !== undefined) this.glide(next);
  }

  // One step in motion; at once where people asked for less motion.
  glide(target) {
    const calm = matchMedia('(prefers-reduced-motion: reduce)').matches;
    if (calm || target < this.position) return this.seek(target);
    this.run(target, this.clock === 'step' ? 700 : 300);
    this.target = target;
  }

  toggle() {
    if (this.timer) return this.pause();
    if (this.position >= this.range[1] - 1e-9) this.show(this.range[0]);
    const length = this.range[1] - this.position, whole = this.range[1] - this.range[0];
    const pace = this.clock === 'step' ? Math.max(350, Math.min(1200, 24000 / Math.max(1, whole))) : 10000 / whole;
    this.run(this.range[1], length * pace);
  }

  // Moves to a position within some milliseconds.
  run(target, length) {
    this.pause();
    const from = this.position, begin = performance.now();
    const frame = now => {
      const part = length <= 0 ? 1 : Math.min(1, Math.max(0, now - begin) / length);
      this.show(part === 1 ? target : from + (target - from) * part);
      if (part === 1) return this.pause();
      this.timer = requestAnimationFrame(frame);
    };
    this.timer = requestAnimationFrame(frame);
    document.getElementById('play').classList.add('playing');
    document.getElementById('play').setAttribute('aria-label', 'Pause');
  }

  pause() {
    cancelAnimationFrame(this.timer);
    this.timer = 0;
    this.target = null;  // of one step in motion
    document.getElementById('play').classList.remove('playing');
    document.getElementById('play').setAttribute('aria-label', 'Play');
  }
}

window.player = new Player(JSON.parse(document.getElementById('runs').textContent).map(data => new Run(data)));
