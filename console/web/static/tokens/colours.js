/* Colourings: the class of each token, and the legend. The colours themselves stand in tokens.css. */

const LOGPROBS = [-0.01, -0.1, -0.5, -1, -2, -4, -Infinity];
const LOGPROB_NAMES = ["above 99 %", "90 to 99 %", "61 to 90 %", "37 to 61 %", "14 to 37 %", "2 to 14 %", "below 2 %"];
const ADVANTAGES = ["far below 0", "below 0", "0", "above 0", "far above 0"];
const RANKS = 8;
const WORKERS = 8;
export const NONE = "c-none";

const words = name => name.replaceAll("_", " ");
const logprobBin = value => LOGPROBS.findIndex(least => value >= least);

/* Versions in at most eight runs of neighbours, the oldest first, spread over all colours. */
function ranksOf(versions) {
  const ranks = Math.min(RANKS, versions.length);
  const rank = new Map(versions.map((version, place) => [version, Math.floor(place * ranks / versions.length)]));
  const names = Array.from({ length: ranks }, (_, number) => {
    const mine = versions.filter(version => rank.get(version) === number);
    return mine.length > 1 ? `${mine[0]} to ${mine.at(-1)}` : String(mine[0]);
  });
  const spread = number => (ranks > 1 ? Math.round(number * (RANKS - 1) / (ranks - 1)) : RANKS - 1);
  return { css: version => `v-${spread(rank.get(version))}`, ranked: rank, names: names.map((name, number) => ({ css: `v-${spread(number)}`, name })) };
}

function advantageClass(value, most) {
  if (Number.isNaN(value)) return NONE;
  if (value === 0) return "a-2";
  const far = Math.abs(value) > most / 2;
  return value < 0 ? (far ? "a-0" : "a-1") : (far ? "a-4" : "a-3");
}

/* Return name, classOf(values) and legend of each colouring of a session.
   `values(column)` is a number of the token: reasons, versions, workers, mask, logprobs, advantages. */
export function colourings(twin) {
  const { css, ranked, names } = ranksOf(twin.versions);
  const most = Math.max(0, ...twin.overview.advantages.map(value => Math.abs(value ?? 0)));
  const none = { css: NONE, name: "none" };
  return {
    reason: {
      name: "why trained, or not",
      classOf: values => `why-${twin.reasons[values("reasons")].kind}`,
      legend: twin.kinds.map(row => ({
        css: `why-${row.kind}`, name: words(row.kind), about: row.meaning, count: row.tokens,
      })),
    },
    logprob: {
      name: "log-prob at the engine",
      classOf: values => {
        const value = values("logprobs");
        return Number.isNaN(value) ? NONE : `p-${logprobBin(value)}`;
      },
      legend: [...LOGPROB_NAMES.map((name, bin) => ({ css: `p-${bin}`, name })), none],
    },
    version: {
      name: "policy version",
      classOf: values => {
        const version = values("versions");
        return version === -1 ? "v-mixed" : ranked.has(version) ? css(version) : NONE;
      },
      legend: [...names, { css: "v-mixed", name: "not known exactly" }, none],
    },
    worker: {
      name: "worker",
      classOf: values => {
        const worker = values("workers");
        return worker < 0 ? NONE : `w-${worker % WORKERS}`;
      },
      legend: [...twin.workers.map((name, place) => ({ css: `w-${place % WORKERS}`, name })), none],
    },
    mask: {
      name: "loss mask",
      classOf: values => (values("versions") === -2 ? NONE : values("mask") ? "m-1" : "m-0"),
      legend: [{ css: "m-1", name: "may be trained" }, { css: "m-0", name: "masked" }, { ...none, name: "not sampled" }],
    },
    advantage: {
      name: "advantage",
      classOf: values => advantageClass(values("advantages"), most),
      legend: [...ADVANTAGES.map((name, place) => ({ css: `a-${place}`, name })), none],
    },
  };
}

/* Values of a part of the overview, as `classOf` asks for them. */
export function ofPart(overview, part) {
  return column => overview[column][part] ?? NaN;
}
