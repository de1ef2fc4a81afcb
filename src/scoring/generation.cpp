#include "scoring/generation.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "base/format/limits.h"
#include "base/plain/error.h"
#include "base/random/random.h"
#include "base/system/device.h"
#include "base/system/transfers.h"
#include "models/memory_plan.h"
#include "scoring/beam_search.h"

namespace evenkeel::scoring {
namespace {

/// Packs `pieces[b]` as the continuation of the `cached[b]` tokens of sequence b.
data::PackedBatch continue_batch(std::span<const TokenIds> pieces, std::span<const int64_t> cached) {
  TokenIds ids, positions;
  data::PackedBatch batch;
  batch.offsets.push_back(0);
  for (size_t b = 0; b < pieces.size(); ++b) {
    for (size_t i = 0; i < pieces[b].size(); ++i) positions.push_back(cached[b] + static_cast<int64_t>(i));
    ids.insert(ids.end(), pieces[b].begin(), pieces[b].end());
    batch.offsets.push_back(static_cast<int64_t>(ids.size()));
  }
  batch.ids = at::tensor(ids, at::kLong);
  batch.positions = at::tensor(positions, at::kLong);
  batch.target_rows = batch.targets = at::empty({0}, at::kLong);
  return batch;
}

/// Returns the end of the range of pieces that fit into a pass that begins with `first`.
size_t pass_end(std::span<const TokenIds> pieces, size_t first) {
  size_t end = first, tokens = 0;
  do tokens += pieces[end++].size();
  while (end < pieces.size() && tokens + pieces[end].size() <= static_cast<size_t>(kPassTokens));
  return end;
}

at::Tensor select_rows(const at::Tensor& x_TD, const TokenIds& rows) {
  return x_TD.index_select(0, uploaded(rows, x_TD.device()));
}

size_t shared_tokens(const TokenIds& x, const TokenIds& y) {
  return static_cast<size_t>(std::mismatch(x.begin(), x.end(), y.begin(), y.end()).first - x.begin());
}

/// Returns how many tokens of a prompt the prefix provides. At least one token remains to be run.
int64_t tokens_from_prefix(const TokenIds& prompt, const PromptPrefix* prefix) {
  return prefix ? static_cast<int64_t>(std::min(shared_tokens(prefix->ids, prompt), prompt.size() - 1)) : 0;
}

/// Copies to the host what was computed from logits, and checks that the logits are finite, with one wait.
/// \param prompt_of  returns the prompt of a row of logits
template <typename PromptOf>
at::Tensor read_checked(const at::Tensor& values, const at::Tensor& logits_NV, const PromptNames& names,
                        PromptOf prompt_of) {
  const auto [least_N, most_N] = at::aminmax(logits_NV, 1);  // both propagate NaN
  Download download({values, least_N, most_N});
  const auto& read = download.wait();
  const auto finite_N = read[1].isfinite().logical_and_(read[2].isfinite());
  const bool* finite = finite_N.const_data_ptr<bool>();
  int64_t first = -1;
  for (int64_t row = 0; row < finite_N.numel(); ++row)
    if (!finite[row] && (first < 0 || prompt_of(row) < first)) first = prompt_of(row);
  EK_CHECK(first < 0, kNumeric, names.of(first), ": the model's logits are not finite");
  return read[0];
}

/// Checks that the memory of the cache's device suffices for the cache. It cannot be checked earlier, because it
/// depends on the prompts' tokens.
void check_memory(const nn::KvShape& shape, int64_t prompts, int64_t tokens) {
  const models::MemoryPlan plan{
      .parts = {{concat("caches of ", prompts, " prompts and what follows them, ", tokens, " tokens"),
                 models::cache_bytes(shape, tokens), "the number of prompts run at once"}},
      .mapped = 0};
  if (shape.device.is_cpu()) return models::require_memory(plan, machine::memory(), "generation");
  // Blocks that the allocator keeps unused do not count as free.
  if (plan.needed() > device_memory(shape.device).free / 2) give_back_device_memory(shape.device);
  models::require_device_memory(plan, shape.device, "generation");
}

std::vector<TokenIds> single_tokens(const TokenIds& tokens) {
  std::vector<TokenIds> pieces;
  for (const int64_t token : tokens) pieces.push_back({token});
  return pieces;
}

constexpr int64_t kPlaceStep = 64;    // places have a multiple of so many tokens, so that few sizes occur
constexpr int64_t kMostOfTokens = 2;  // they take at most so many times the memory of their tokens, before rounding

/// Returns the tokens of a place for a sequence of `longest` tokens.
int64_t place_capacity(int64_t longest) { return (longest + kPlaceStep - 1) / kPlaceStep * kPlaceStep; }

/// Returns the number of places of sequences whose steps may be recorded.
int64_t places_of(size_t sequences) { return static_cast<int64_t>(std::bit_ceil(sequences)); }

/// Moves the sequences of a cache on a GPU to places with room for `room[b]` more tokens, unless that takes more than
/// kMostOfTokens times the memory of their tokens.
/// \return whether they were moved
bool move_to_places(nn::KvCache& cache, std::span<const int64_t> room, nn::PassGraphs* graphs) {
  // A pass has all sequences, because the places of others would be free for it.
  if (cache.shape().device.is_cpu() || room.empty() || std::ssize(room) > kPassTokens) return false;
  int64_t longest = 0, tokens = 0;
  const auto lengths = cache.lengths();
  for (size_t b = 0; b < room.size(); ++b)
    longest = std::max(longest, lengths[b] + room[b]), tokens += lengths[b] + room[b];
  const int64_t capacity = place_capacity(longest), places = graphs ? places_of(room.size()) : std::ssize(room);
  if (places * longest > kMostOfTokens * tokens) return false;
  nn::KvArena own;
  cache.move_to_places((graphs ? graphs->arena() : own).memory(cache.shape(), places, capacity), capacity);
  return true;
}

/// Chooses the next token of each sequence: the likeliest one, or a random one.
class NextTokens {
 public:
  NextTokens(const std::optional<Sampling>& sampling, size_t prompts) : sampling_(sampling) {
    for (size_t b = 0; sampling && b < prompts; ++b) streams_.emplace_back(sampling->seed, "generate", b);
  }

  /// Returns the next tokens. The likeliest is the one with the largest logit, ties to the lowest id.
  /// \param live  the prompt of each row of logits \throws kNumeric naming the prompt if its logits are not finite
  TokenIds of(const at::Tensor& logits_BV, const TokenIds& live, const PromptNames& names) {
    const auto read = read_checked(sampling_ ? logits_BV : logits_BV.argmax(1), logits_BV, names,
                                   [&](int64_t row) { return live[static_cast<size_t>(row)]; });
    if (!sampling_) return {read.const_data_ptr<int64_t>(), read.const_data_ptr<int64_t>() + read.numel()};
    // On the CPU, the order of a sum does not depend on the batch.
    const auto probabilities_BV = kept_probabilities(read, *sampling_);
    TokenIds drawn;
    for (size_t i = 0; i < live.size(); ++i)
      drawn.push_back(
          drawn_token(probabilities_BV[static_cast<int64_t>(i)], streams_[static_cast<size_t>(live[i])].uniform()));
    return drawn;
  }

 private:
  std::optional<Sampling> sampling_;
  std::vector<RandomStream> streams_;
};

/// Returns the tokens that end a sequence: eos tokens first, then the stop tokens.
TokenIds ends_of(const GenerationOptions& options, const TokenIds& model_eos) {
  TokenIds ends;
  for (const auto* ids : {options.eos ? &*options.eos : &model_eos, &options.stops})
    for (const int64_t id : *ids)
      if (std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  return ends;
}

/// The sequences of a call of generate(), which are extended by one token at a time.
struct Sequences {
  const models::CausalLm& model;
  const models::ForwardOptions& forward;
  PromptRun run;
  const TokenIds ends;
  const GenerationOptions& options;
  std::vector<TokenIds> outputs{};
  TokenIds live{}, last{};  // prompt of each cached sequence, and its latest token

  bool is_end(int64_t token) const { return std::find(ends.begin(), ends.end(), token) != ends.end(); }

  /// Appends the next token of each prompt in `of`.
  /// \return the indices in `of` of the prompts that continue
  TokenIds take(const TokenIds& of, const TokenIds& tokens) {
    TokenIds continuing;
    for (size_t i = 0; i < of.size(); ++i) {
      const auto prompt = static_cast<size_t>(of[i]);
      auto& output = outputs[prompt];
      if (is_end(tokens[i])) continue;
      output.push_back(tokens[i]);
      if (static_cast<int64_t>(output.size()) == options.max_new_tokens) continue;
      if (options.is_enough && options.is_enough(prompt, output)) continue;
      continuing.push_back(static_cast<int64_t>(i));
    }
    return continuing;
  }

  /// Chooses the first token of prompts without known tokens, from their last hidden states.
  void begin(NextTokens& next) {
    outputs.resize(run.cache.sequences.size());
    TokenIds unknown;
    for (size_t b = 0; b < outputs.size(); ++b)
      if (run.known.empty() || run.known[b].tokens.empty()) unknown.push_back(static_cast<int64_t>(b));
    if (!unknown.empty()) {
      const auto tokens = next.of(model.logits(select_rows(run.last_BD, unknown), forward), unknown, run.names);
      for (const int64_t index : take(unknown, tokens)) {
        live.push_back(unknown[static_cast<size_t>(index)]);
        last.push_back(tokens[static_cast<size_t>(index)]);
      }
    }
    for (size_t b = 0; b < run.known.size(); ++b) begin_with(b, run.known[b]);
    open();
  }

  void begin_with(size_t b, const KnownBeginning& known) {
    for (const int64_t token : known.tokens)
      if (take({static_cast<int64_t>(b)}, {token}).empty()) return;
    if (known.tokens.empty()) return;
    run.cache.sequences[b] = known.cached;
    live.push_back(static_cast<int64_t>(b));
    last.push_back(known.tokens.back());
  }

  void open() {
    run.cache.select(live);
    std::vector<int64_t> room;
    for (const int64_t prompt : live)
      room.push_back(options.max_new_tokens - static_cast<int64_t>(outputs[static_cast<size_t>(prompt)].size()));
    if (room.empty() || move_to_places(run.cache, room, forward.graphs)) return;
    if (forward.graphs) forward.graphs->arena() = nn::KvArena();  // these sequences take its memory
    run.cache.open(room);
  }

  void step(NextTokens& next) {
    const auto hidden_BD = extend(model, forward, run.cache, single_tokens(last));
    const auto tokens = next.of(model.logits(hidden_BD, forward), live, run.names);
    const auto continuing = take(live, tokens);
    if (continuing.size() < live.size()) run.cache.select(continuing);
    TokenIds next_live, next_last;
    for (const int64_t index : continuing) {
      next_live.push_back(live[static_cast<size_t>(index)]);
      next_last.push_back(tokens[static_cast<size_t>(index)]);
    }
    live = std::move(next_live);
    last = std::move(next_last);
  }
};

std::vector<TokenIds> one_by_one(const models::CausalLm& model, const models::ForwardOptions& forward, PromptRun run,
                                 TokenIds ends, const GenerationOptions& options) {
  Sequences sequences{model, forward, std::move(run), std::move(ends), options};
  if (options.sampling) sequences.run.known.clear();
  NextTokens next(options.sampling, sequences.run.cache.sequences.size());
  sequences.begin(next);
  while (!sequences.live.empty()) sequences.step(next);
  return std::move(sequences.outputs);
}

std::vector<TokenIds> beam_search(const models::CausalLm& model, const models::ForwardOptions& forward, PromptRun run,
                                  const TokenIds& ends, const GenerationOptions& options) {
  const auto prompts = run.cache.sequences.size();
  std::vector<BeamSearch> searches(prompts, BeamSearch(options.beams, ends, options.max_new_tokens));
  /// Number of running beams of each search; the cache holds the beams of all searches in this order.
  std::vector<int64_t> rows(prompts, 1);
  const auto owner = [&](int64_t row) {
    int64_t b = 0;
    for (; row >= rows[static_cast<size_t>(b)]; ++b) row -= rows[static_cast<size_t>(b)];
    return b;
  };
  const int64_t new_tokens = options.beams * options.max_new_tokens;
  check_memory(run.cache.shape(), std::ssize(searches), std::ssize(searches) * new_tokens);
  run.cache.open(std::vector<int64_t>(prompts, new_tokens));
  auto hidden_BD = run.last_BD;
  while (true) {
    const auto logits_BV = model.logits(hidden_BD, forward);
    const auto logprobs_BV = read_checked(at::log_softmax(logits_BV.to(at::kFloat), 1), logits_BV, run.names, owner);
    TokenIds parents, tokens;
    int64_t first = 0;
    for (size_t b = 0; b < prompts; ++b) {
      if (rows[b] == 0) continue;
      const auto onward = searches[b].advance(logprobs_BV.narrow(0, first, rows[b]));
      for (const auto& beam : onward) {
        parents.push_back(first + beam.parent);
        tokens.push_back(beam.token);
      }
      first += std::exchange(rows[b], static_cast<int64_t>(onward.size()));
    }
    if (tokens.empty()) break;
    run.cache.select(parents);
    hidden_BD = extend(model, forward, run.cache, single_tokens(tokens));
  }
  std::vector<TokenIds> outputs;
  for (const auto& search : searches) outputs.push_back(search.best());
  return outputs;
}

}  // namespace

void PromptSizes::add(int64_t length) {
  ++count;
  tokens += length;
  longest = std::max(longest, length);
}

int64_t cached_tokens(const PromptSizes& prompts, int64_t new_tokens, int64_t beams, c10::Device device,
                      nn::EngineKind engine) {
  const int64_t all = prompts.tokens + prompts.count * beams * new_tokens;
  if (device.is_cpu() && engine == nn::EngineKind::kKernels) return all;
  if (device.is_cpu() || beams > 1) return all + beams * (prompts.tokens + prompts.count * new_tokens);
  const int64_t places = places_of(static_cast<size_t>(prompts.count));
  // Sequences that are not moved take no more: their new tokens, and a copy of all tokens in each step.
  return prompts.tokens +
         std::min(places * place_capacity(prompts.longest + new_tokens), kMostOfTokens * all + places * kPlaceStep);
}

void check_prompts(const models::ModelSpec& spec, std::span<const TokenIds> prompts,
                   std::span<const int64_t> new_tokens, const PromptNames& names) {
  EK_CHECK(new_tokens.size() == prompts.size(), kInternal, new_tokens.size(), " numbers of new tokens for ",
           prompts.size(), " prompts");
  for (size_t b = 0; b < prompts.size(); ++b) {
    const auto length = static_cast<int64_t>(prompts[b].size());
    EK_CHECK(length > 0, kData, names.of(b), " has no tokens");
    EK_CHECK(length + new_tokens[b] <= spec.max_positions, kData, names.of(b), " has ", length, " tokens, with ",
             new_tokens[b], " new ones more than the model's ", spec.max_positions, " positions");
    for (const int64_t id : prompts[b])
      EK_CHECK(id >= 0 && id < spec.vocab_size, kData, names.of(b), " holds token id ", id, ", allowed: 0 .. ",
               spec.vocab_size - 1);
  }
}

nn::KvShape kv_shape(const models::CausalLm& model, nn::KvType type, const nn::Compute& compute) {
  const auto& spec = model.spec();
  const bool is_double = model.activations() == at::kDouble;
  return {.layers = spec.num_layers,
          .heads = spec.num_kv_heads,
          .width = spec.head_width,
          .type = is_double                       ? at::kDouble
                  : type == nn::KvType::kBFloat16 ? at::kBFloat16
                                                  : compute.inner,
          .device = model.device()};
}

std::vector<int64_t> lengths_of(std::span<const TokenIds> pieces) {
  std::vector<int64_t> lengths;
  for (const auto& piece : pieces) lengths.push_back(std::ssize(piece));
  return lengths;
}

at::Tensor extend(const models::CausalLm& model, const models::ForwardOptions& forward, nn::KvCache& cache,
                  std::span<const TokenIds> pieces, bool last_only) {
  models::ForwardOptions options = forward;
  options.routing = {};
  options.last_only = last_only;
  std::vector<at::Tensor> hidden;
  for (size_t first = 0, end = 0; first < pieces.size(); first = end) {
    end = pass_end(pieces, first);
    nn::KvCache part(cache.shape());
    part.sequences.assign(cache.sequences.begin() + static_cast<std::ptrdiff_t>(first),
                          cache.sequences.begin() + static_cast<std::ptrdiff_t>(end));
    options.cache = &part;
    hidden.push_back(model.hidden(continue_batch(pieces.subspan(first, end - first), part.lengths()), options));
    std::move(part.sequences.begin(), part.sequences.end(),
              cache.sequences.begin() + static_cast<std::ptrdiff_t>(first));
  }
  return hidden.size() == 1 ? hidden.front() : at::cat(hidden);
}

TokenIds common_prefix(std::span<const TokenIds> prompts) {
  if (prompts.size() < 2) return {};
  size_t shared = prompts[0].size();
  for (const auto& prompt : prompts) shared = std::min({shared, shared_tokens(prompts[0], prompt), prompt.size() - 1});
  return {prompts[0].begin(), prompts[0].begin() + static_cast<std::ptrdiff_t>(shared)};
}

PromptPrefix run_prefix(const models::CausalLm& model, const models::ForwardOptions& forward, TokenIds ids,
                        nn::KvType type) {
  if (ids.empty()) return {};
  const at::NoGradGuard no_grad;
  nn::KvCache cache(kv_shape(model, type, forward.compute));
  cache.sequences.resize(1);
  cache.open(0, static_cast<int64_t>(ids.size()));
  extend(model, forward, cache, {&ids, 1}, /*last_only=*/true);
  return {std::move(ids), cache.sequences.front()};
}

PromptRun run_prompts(const models::CausalLm& model, const models::ForwardOptions& forward,
                      std::span<const TokenIds> prompts, const PromptOptions& options) {
  const at::NoGradGuard no_grad;
  const auto new_tokens =
      options.new_tokens.empty() ? std::vector<int64_t>(prompts.size(), options.max_new_tokens) : options.new_tokens;
  check_prompts(model.spec(), prompts, new_tokens, options.names);
  PromptRun run{nn::KvCache(kv_shape(model, options.cache, forward.compute)), {}, options.names};
  std::vector<TokenIds> suffixes;
  int64_t tokens = 0;
  for (size_t b = 0; b < prompts.size(); ++b) {
    const auto& prompt = prompts[b];
    const int64_t cached_tokens = tokens_from_prefix(prompt, options.prefix);
    run.cache.sequences.push_back(cached_tokens > 0 ? options.prefix->cached.prefix(cached_tokens) : nn::KvSequence());
    suffixes.emplace_back(prompt.begin() + cached_tokens, prompt.end());
    tokens += static_cast<int64_t>(suffixes.back().size()) + new_tokens[b];
  }
  check_memory(run.cache.shape(), static_cast<int64_t>(prompts.size()), tokens);
  run.cache.open(lengths_of(suffixes));
  if (!prompts.empty()) run.last_BD = extend(model, forward, run.cache, suffixes, /*last_only=*/true);
  return run;
}

std::vector<TokenIds> generate(const models::CausalLm& model, const models::ForwardOptions& forward, PromptRun run,
                               const GenerationOptions& options) {
  limits::check_integer("max_new_tokens", options.max_new_tokens, 1, limits::kTokens);
  limits::check_integer("beams", options.beams, 1, limits::kBeams);
  if (run.cache.sequences.empty()) return {};
  const at::NoGradGuard no_grad;
  EK_CHECK(!options.sampling || options.beams == 1, kConfig, "beam search draws nothing: beams is ", options.beams,
           ", allowed with sampling: 1");
  if (options.sampling) options.sampling->check();
  const auto prepared = model.prepared(forward);
  auto ends = ends_of(options, model.spec().eos);
  return options.beams == 1 ? one_by_one(model, prepared, std::move(run), std::move(ends), options)
                            : beam_search(model, prepared, std::move(run), ends, options);
}

std::vector<TokenIds> generate(const models::CausalLm& model, const models::ForwardOptions& forward,
                               std::span<const TokenIds> prompts, const GenerationOptions& options) {
  return generate(model, forward, run_prompts(model, forward, prompts, {.max_new_tokens = options.max_new_tokens}),
                  options);
}

}  // namespace evenkeel::scoring
