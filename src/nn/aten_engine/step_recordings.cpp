#include "nn/aten_engine/step_recordings.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <utility>

#include "base/plain/error.h"
#include "base/plain/log.h"
#include "nn/aten_engine/copied_values.h"
#include "nn/aten_engine/pass.h"
#include "nn/dense/index.h"

namespace evenkeel::nn::aten {
namespace {

bool adds_one_token_each(const data::PackedBatch& batch) { return batch.tokens() == batch.sequences(); }

/// Returns a batch of `count` sequences of one token, which begins with those of `batch`. The others are token 0.
data::PackedBatch padded_batch(const data::PackedBatch& batch, int64_t count) {
  data::PackedBatch padded;
  padded.ids = at::constant_pad_nd(batch.ids, {0, count - batch.tokens()});
  padded.positions = at::constant_pad_nd(batch.positions, {0, count - batch.tokens()});
  for (int64_t b = 0; b <= count; ++b) padded.offsets.push_back(b);
  padded.target_rows = batch.target_rows, padded.targets = batch.targets;
  return padded;
}

/// Adds places that no sequence has.
void add_free_places(KvPlaces& places, int64_t count) {
  auto& place_B = places.place_B;
  std::vector<bool> is_used(static_cast<size_t>(places.count()), false);
  for (const int64_t place : place_B) is_used[static_cast<size_t>(place)] = true;
  for (int64_t place = 0; std::ssize(place_B) < count; ++place)
    if (!is_used[static_cast<size_t>(place)]) place_B.push_back(place);
}

}  // namespace

/// A pass whose batch has a number of sequences that recordings have. A token of padding is the first of its place.
struct StepRecordings::Padded {
  data::PackedBatch batch;
  KvPlaces places;
  Layout layout;
  PlacesStep step;

  static std::optional<Padded> of(const PassInput& in) {
    auto places = adds_one_token_each(in.batch) ? in.cache->places() : std::nullopt;
    if (!places || in.last_only || !in.routing.empty()) return std::nullopt;
    auto lengths = in.cache->lengths();
    const auto count = std::min(static_cast<int64_t>(std::bit_ceil(lengths.size())), places->count());
    add_free_places(*places, count);
    lengths.resize(static_cast<size_t>(count), 1);
    auto batch = padded_batch(in.batch, count);
    auto layout = Layout::of(batch, in.rotary_width, in.ropes, in.device);
    auto step = PlacesStep::of(*places, lengths);
    return Padded{std::move(batch), *std::move(places), std::move(layout), std::move(step)};
  }
  PassInput input(const GraphedPass& pass, std::shared_ptr<const PreparedFactors> factors) const {
    const auto& in = pass.input;
    return {.batch = batch,
            .compute = in.compute,
            .device = in.device,
            .cache = in.cache,
            .experts = in.experts,
            .top_k = in.top_k,
            .factors = std::move(factors)};
  }
  std::vector<at::Tensor> tensors() const {
    auto all = layout.tensors();
    const auto more = step.tensors();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::vector<int64_t> key(const GraphedPass& pass) const {
    const auto& in = pass.input;
    auto key = pass.key;
    key.insert(key.end(), {in.experts, in.top_k, in.device.index(), std::bit_cast<int64_t>(in.factors.get()),
                           std::bit_cast<int64_t>(places.memory.const_data_ptr()),
                           static_cast<int64_t>(places.memory.scalar_type()), places.capacity, places.count()});
    for (const auto& tensor : tensors()) key.push_back(tensor.size(0));
    return key;
  }
};

at::Tensor StepRecordings::run(const GraphedPass& pass, bool may_record) {
  const auto padded = Padded::of(pass.input);
  if (!padded) return eager(pass);
  const int64_t sequences = pass.input.batch.sequences();
  const auto* recorded = may_record ? recording(pass, *padded) : nullptr;
  return (recorded ? replay(*recorded, *padded) : eager(pass, *padded)).narrow(0, 0, sequences);
}

at::Tensor StepRecordings::eager(const GraphedPass& pass) {
  ++counts_.eager;
  auto input = pass.input;
  input.factors = pass.factors();
  AtenPass within(input);
  auto hidden = pass.layers(within);
  within.end();
  return hidden;
}

at::Tensor StepRecordings::eager(const GraphedPass& pass, const Padded& padded) {
  ++counts_.eager;
  AtenPass within(padded.input(pass, pass.factors()), padded.layout,
                  std::make_unique<PlacesView>(padded.places, padded.step));
  return pass.layers(within);
}

at::Tensor StepRecordings::replay(const RecordedStep& recorded, const Padded& padded) {
  ++counts_.replayed;
  auto to = recorded.layout.tensors();
  const auto more = recorded.step.tensors();
  to.insert(to.end(), more.begin(), more.end());
  copy_values(to, padded.tensors());
  recorded.graph->replay();
  return recorded.hidden_BD;
}

const RecordedStep* StepRecordings::recording(const GraphedPass& pass, const Padded& padded) {
  if (pass.key.empty() || !pass.input.factors || c10::GradMode::is_enabled() || is_failed_) return nullptr;
  auto key = padded.key(pass);
  const auto found = std::find_if(known_.begin(), known_.end(), [&](const auto& entry) { return entry.key == key; });
  if (found == known_.end()) {
    // Factors are prepared once for all passes with them, so others do not come back.
    std::erase_if(known_, [&](const auto& entry) { return entry.factors != pass.input.factors; });
    known_.push_front({.key = std::move(key), .factors = pass.input.factors});
    if (known_.size() > kMostRecordedSteps) known_.pop_back();
    return nullptr;
  }
  known_.splice(known_.begin(), known_, found);
  if (!known_.front().graph) record(pass, padded, known_.front());
  return known_.front().graph ? &known_.front() : nullptr;
}

void StepRecordings::record(const GraphedPass& pass, const Padded& padded, RecordedStep& into) {
  try {
    auto pool = pool_.lock();
    if (!pool) pool_ = pool = new_graph_pool();
    into.layout = padded.layout.copy(), into.step = padded.step.copy();
    auto graph = std::make_unique<DeviceGraph>(pass.input.device, pool, [&] {
      AtenPass within(padded.input(pass, into.factors), into.layout,
                      std::make_unique<PlacesView>(padded.places, into.step));
      into.hidden_BD = pass.layers(within);
    });
    into.graph = std::move(graph);
    check_replay(pass, padded, into);
    ++counts_.recorded;
  } catch (const std::exception& error) {
    is_failed_ = true;
    into.graph.reset();
    const std::string text = error.what();
    log::warning("[graphs] a step of generation cannot be recorded, so all operators are started one by one: ",
                 text.substr(0, text.find('\n')));
  }
}

void StepRecordings::check_replay(const GraphedPass& pass, const Padded& padded, const RecordedStep& recorded) {
  const auto operators = eager(pass, padded);
  const auto replayed = replay(recorded, padded);
  --counts_.eager, --counts_.replayed;
  EK_CHECK(at::equal(replayed, operators), kInternal, "its replay differs from its operators");
}

}  // namespace evenkeel::nn::aten
