// Draws one chart with uPlot. Points, ranges, levels and crossings are drawn here; uPlot has the axes, the curves and
// the cursor. Every text comes printed from the file's figures; nothing is put into the page as HTML.
"use strict";

const SHAPES = ["circle", "square", "diamond", "triangle"];

function themeOf(root) {
  const style = getComputedStyle(root);
  const colour = (name) => style.getPropertyValue(name).trim();
  return {
    ink: colour("--ink"),
    faint: colour("--faint"),
    line: colour("--line"),
    paper: colour("--paper"),
    series: Array.from({ length: 8 }, (_, place) => colour(`--series-${place}`)),
    font: `12px ${style.getPropertyValue("--sans").trim()}`,
  };
}

// Values as the axis counts them, on one list of places; null where a series has none.
function aligned(chart, state) {
  const factor = chart.y.factor;
  const places = [...new Set(chart.series.flatMap((one) => one.xs))].sort((a, b) => a - b);
  const onPlaces = (one, values) => {
    const known = new Map(one.xs.map((x, index) => [x, values[index]]));
    return places.map((x) => {
      const value = known.get(x);
      if (value === undefined || value === null) return null;
      return state.isLogY && value <= 0 ? null : value * factor;
    });
  };
  if (!chart.isStack) return { places, columns: chart.series.map((one) => onPlaces(one, one.ys)), onPlaces };
  const sums = places.map(() => 0);
  const columns = chart.series.map((one, index) =>
    onPlaces(one, one.ys).map((value, place) => {
      if (state.hidden.has(index) || value === null || value <= 0) return null;
      sums[place] += value;
      return sums[place];
    }),
  );
  return { places: places.map((_, place) => place), columns, lengths: places, onPlaces };
}

// --- axes

function logSplits(low, high, room, apart) {
  if (!(low > 0) || !(high > low)) return [];
  const candidates = [[1, 1.5, 2, 3, 4, 5, 6, 8], [1, 2, 5], [1, 3], [1]];
  const pixels = room / Math.log10(high / low);
  for (const steps of candidates) {
    const splits = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      for (const step of steps) {
        const value = step * 10 ** power;
        if (value >= low * 0.999 && value <= high * 1.001) splits.push(value);
      }
    }
    const gaps = splits.slice(1).map((value, index) => Math.log10(value / splits[index]) * pixels);
    if (splits.length > 1 && Math.min(...gaps) >= apart) return splits;
  }
  return [low, high];
}

function linearSplits(low, high, room, apart, isWhole = false) {
  if (!(high > low)) return [];
  const least = ((high - low) * apart) / room;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = Math.max([1, 2, 5, 10].map((each) => each * power).find((each) => each >= least), isWhole ? 1 : 0);
  const splits = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high * (1 + 1e-9); index++) splits.push(index * step);
  return splits;
}

function plain(value) {
  return String(Number(value.toPrecision(3)));
}

function tickText(kind, value) {
  if (kind === "length") {
    if (value >= 1e6) return `${plain(value / 1e6)}M`;
    return value >= 1000 ? `${plain(value / 1000)}k` : plain(value);
  }
  if (kind === "share") return `${plain(value)} %`;
  if (kind === "seconds") return value >= 1 || value === 0 ? `${plain(value)} s` : `${plain(value * 1000)} ms`;
  return value >= 10000 ? `${plain(value / 1000)}k` : plain(value);
}

function range(values, isLog, isFromZero) {
  const known = values.filter((value) => value !== null && Number.isFinite(value) && (!isLog || value > 0));
  if (!known.length) return isLog ? [1, 10] : [0, 1];
  let low = Math.min(...known);
  let high = Math.max(...known);
  if (isLog) {
    if (low === high) return [low / 2, high * 2];
    const wide = Math.max((high / low) ** 0.06, 1.08);
    return [low / wide, high * wide];
  }
  if (isFromZero) low = Math.min(low, 0);
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return [low === 0 ? 0 : low - room, high + room];
}

// --- drawing on the canvas, in its own pixels

function shape(context, name, x, y, size) {
  context.beginPath();
  if (name === "circle") context.arc(x, y, size, 0, 2 * Math.PI);
  else if (name === "square") context.rect(x - size * 0.9, y - size * 0.9, size * 1.8, size * 1.8);
  else {
    const corners = name === "diamond" ? 4 : 3;
    for (let corner = 0; corner < corners; corner++) {
      const angle = (2 * Math.PI * corner) / corners - Math.PI / 2;
      context.lineTo(x + 1.3 * size * Math.cos(angle), y + 1.3 * size * Math.sin(angle));
    }
    context.closePath();
  }
}

function drawPoints(plot, chart, state, theme, lanes) {
  const context = plot.ctx;
  const scale = uPlot.pxRatio;
  chart.series.forEach((one, index) => {
    if (one.role !== "points" || state.hidden.has(index)) return;
    const colour = theme.series[one.colour % theme.series.length];
    context.setLineDash([]);
    context.lineWidth = 1.5 * scale;
    context.strokeStyle = colour;
    lanes.places.forEach((place, at) => {
      const value = lanes.columns[index][at];
      if (value === null) return;
      const x = plot.valToPos(place, "x", true);
      const y = plot.valToPos(value, "y", true);
      const low = lanes.lows[index]?.[at];
      const high = lanes.highs[index]?.[at];
      if (low != null && high != null) {
        context.beginPath();
        context.moveTo(x, plot.valToPos(low, "y", true));
        context.lineTo(x, plot.valToPos(high, "y", true));
        context.stroke();
      }
      const isDoubted = Boolean(lanes.marks[index]?.[at]);
      shape(context, SHAPES[one.colour % SHAPES.length], x, y, 3.6 * scale);
      context.fillStyle = isDoubted ? theme.paper : colour;
      context.fill();
      context.stroke();
    });
  });
}

function drawLevels(plot, chart, theme) {
  const context = plot.ctx;
  const scale = uPlot.pxRatio;
  const { left, top, width, height } = plot.bbox;
  context.font = theme.font.replace("12px", `${11 * scale}px`);
  context.fillStyle = theme.faint;
  context.strokeStyle = theme.faint;
  context.lineWidth = scale;
  for (const level of chart.levels) {
    const y = plot.valToPos(level.y * chart.y.factor, "y", true);
    if (y < top || y > top + height) continue;
    context.setLineDash([2 * scale, 3 * scale]);
    context.beginPath();
    context.moveTo(left, y);
    context.lineTo(left + width, y);
    context.stroke();
    context.setLineDash([]);
    context.textAlign = "right";
    context.textBaseline = "bottom";
    context.fillText(level.label, left + width - 4 * scale, y - 3 * scale);
  }
}

function drawCrossings(plot, chart, theme) {
  const context = plot.ctx;
  const scale = uPlot.pxRatio;
  const { left, top, width, height } = plot.bbox;
  const clamp = (x) => Math.min(Math.max(x, left), left + width);
  for (const one of chart.crossings) {
    const x = plot.valToPos(one.x, "x", true);
    if (one.low !== null && one.high !== null) {
      const from = clamp(plot.valToPos(one.low, "x", true));
      context.globalAlpha = 0.12;
      context.fillStyle = theme.ink;
      context.fillRect(from, top, clamp(plot.valToPos(one.high, "x", true)) - from, height);
      context.globalAlpha = 1;
    }
    context.setLineDash([]);
    context.strokeStyle = theme.ink;
    context.lineWidth = 1.5 * scale;
    context.beginPath();
    context.moveTo(x, top);
    context.lineTo(x, top + height);
    context.stroke();
  }
}

function drawStack(plot, chart, state, theme, lanes) {
  const context = plot.ctx;
  context.setLineDash([]);
  const step = plot.bbox.width / lanes.places.length;
  const width = Math.min(step * 0.6, 56 * uPlot.pxRatio);
  lanes.places.forEach((place, at) => {
    let below = 0;
    chart.series.forEach((one, index) => {
      const upper = lanes.columns[index][at];
      if (upper === null) return;
      const x = plot.valToPos(place, "x", true);
      const y = plot.valToPos(upper, "y", true);
      context.fillStyle = theme.series[one.colour % theme.series.length];
      context.fillRect(x - width / 2, y, width, plot.valToPos(below, "y", true) - y);
      context.strokeStyle = theme.paper;
      context.lineWidth = uPlot.pxRatio;
      context.strokeRect(x - width / 2, y, width, plot.valToPos(below, "y", true) - y);
      below = upper;
    });
  });
}

// --- the chart

// uPlot's own series: a curve each, and for a law's interval its two ends with a band between them.
function curves(chart, state, theme, lanes) {
  const series = [{}];
  const data = [lanes.places];
  const bands = [];
  const hasLaw = new Set(chart.series.filter((one) => one.role === "law").map((one) => one.colour));
  chart.series.forEach((one, index) => {
    const colour = theme.series[one.colour % theme.series.length];
    const isShown = !state.hidden.has(index);
    const isJoined = one.role !== "points" || !hasLaw.has(one.colour);
    const base = { show: isShown, spanGaps: true, points: { show: false } };
    if (one.role === "law" && lanes.lows[index]) {
      const edge = { ...base, stroke: "transparent", width: 0 };
      bands.push({ series: [series.length, series.length + 1], fill: `${colour}26` });
      series.push(edge, edge);
      data.push(lanes.highs[index], lanes.lows[index]);
    }
    const dash = one.role === "law" ? [7, 4] : one.role === "floor" ? [2, 4] : undefined;
    series.push({
      ...base,
      stroke: colour,
      width: chart.isStack || !isJoined ? 0 : 1.5,
      dash,
      ...(chart.isStack || !isJoined ? { paths: () => null } : {}),
    });
    data.push(lanes.columns[index]);
  });
  return { series, data, bands };
}

function drawChart(box, chart, current, onPlace) {
  // uPlot draws a little later: what it then asks must be answered as of now.
  const state = { ...current, hidden: new Set(current.hidden) };
  const theme = themeOf(box);
  const lanes = aligned(chart, state);
  const ends = (name) => chart.series.map((one) => (one[name] ? lanes.onPlaces(one, one[name]) : null));
  const marks = (one) => {
    const known = new Map(one.xs.map((x, index) => [x, one.marks?.[index]]));
    return lanes.places.map((x) => known.get(x));
  };
  Object.assign(lanes, { lows: ends("lows"), highs: ends("highs"), marks: chart.series.map(marks) });
  const { series, data, bands } = curves(chart, state, theme, lanes);
  const shown = (list) => list.filter((values, index) => values && !state.hidden.has(index)).flat();
  const levels = chart.levels.map((level) => level.y * chart.y.factor);
  const yValues = [...shown(lanes.columns), ...shown(lanes.lows), ...shown(lanes.highs), ...levels];
  const xRange = chart.isStack
    ? [-0.5, lanes.places.length - 0.5]
    : range([...lanes.places, ...chart.crossings.map((one) => one.x)], state.isLogX, false);
  const yRange = range(yValues, state.isLogY, true);
  const width = Math.floor(box.clientWidth);
  const isNarrow = width < 480;
  const axis = { stroke: theme.faint, font: theme.font, ticks: { stroke: theme.line, width: 1, size: 5 }, labelFont: theme.font };
  const splits = (isLog, [low, high], room, apart, isWhole) =>
    (isLog ? logSplits : linearSplits)(low, high, Math.max(room, 50), apart, isWhole);
  return new uPlot(
    {
      width,
      height: isNarrow ? 250 : 330,
      padding: [12, 14, 0, 0],
      legend: { show: false },
      cursor: {
        x: true,
        y: false,
        points: { show: false },
        drag: { x: false, y: false, setScale: false },
        dataIdx: (plot, index, closest) => closest,
      },
      scales: {
        x: { time: false, distr: state.isLogX ? 3 : 1, range: () => xRange },
        y: { distr: state.isLogY ? 3 : 1, range: () => yRange },
      },
      axes: [
        {
          ...axis,
          size: 30,
          grid: { show: false },
          label: chart.x.label,
          labelSize: 20,
          splits: () =>
            chart.isStack ? lanes.places : splits(state.isLogX, xRange, width - 80, 46, chart.x.kind === "count"),
          filter: (plot, all) => all,
          values: (plot, all) =>
            all.map((value) =>
              chart.isStack ? tickText("length", lanes.lengths[value]) : tickText(chart.x.kind, value)),
        },
        {
          ...axis,
          size: 58,
          label: isNarrow ? undefined : chart.y.label,
          labelSize: isNarrow ? 0 : 22,
          grid: { stroke: theme.line, width: 1 },
          splits: () => splits(state.isLogY, yRange, 240, 30),
          filter: (plot, all) => all,
          values: (plot, all) => all.map((value) => tickText(chart.y.kind, value)),
        },
      ],
      series,
      bands,
      hooks: {
        drawAxes: [(plot) => { drawLevels(plot, chart, theme); drawCrossings(plot, chart, theme); }],
        draw: [(plot) => (chart.isStack ? drawStack : drawPoints)(plot, chart, state, theme, lanes)],
        setCursor: [(plot) => onPlace(plot, lanes)],
      },
    },
    data,
    box,
  );
}
