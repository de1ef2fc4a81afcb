#include "nn/aten_engine/stack_graphs.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/plain/error.h"
#include "base/plain/log.h"
#include "nn/aten_engine/choices.h"
#include "nn/aten_engine/pass.h"

namespace evenkeel::nn::aten {
namespace {

constexpr size_t kMostKnown = 256;  // keys

/// Returns the key of a pass together with the sizes of its batch.
std::vector<int64_t> with_sizes(const GraphedPass& pass, const Layout& layout) {
  const auto& in = pass.input;
  auto key = pass.key;
  key.insert(key.end(), {in.experts, in.top_k, in.device.index(), layout.longest});
  for (const auto& tensor : layout.tensors()) key.push_back(tensor.size(0));
  return key;
}

at::Tensor eager(const GraphedPass& pass, Layout layout) {
  auto input = pass.input;
  input.factors = pass.factors();
  AtenPass within(input, std::move(layout));
  auto hidden_RD = pass.layers(within);
  within.end();
  return hidden_RD;
}

/// Compares the first replay with the operators, because what a GPU's libraries do while they are recorded is theirs.
void check_replay(RecordedStack& stack, const GraphedPass& pass, const Layout& layout) {
  const c10::NoGradGuard no_grad;
  auto input = pass.input;
  input.factors = pass.factors();
  AtenPass within(input, layout);
  const auto hidden_RD = pass.layers(within);
  const auto& experts_RK = within.choices().experts_RK;
  const bool is_equal = at::equal(stack.forward(layout).front(), hidden_RD) &&
                        (experts_RK.empty() || at::equal(stack.choices_LRK(), at::stack(experts_RK)));
  EK_CHECK(is_equal, kInternal, "its replay differs from its operators");
}

/// Distributes the routing of a replay to the micro-batches. \param results  of run()
void put_routing(const RecordedStack& stack, const std::vector<at::Tensor>& results, const PassInput& in) {
  auto into = in.routing.begin();
  int64_t begin = 0;
  for (const auto& end : in.batch.micro_batch_ends()) {
    for (const auto& layer : stack.layers()) (*into)[layer] = {{}, {}, end.tokens - begin};
    for (size_t l = 0; l < stack.logit_layers().size(); ++l)
      (*into)[stack.logit_layers()[l]].router_logits = results[l + 1].slice(0, begin, end.tokens);
    ++into, begin = end.tokens;
  }
  if (!stack.layers().empty())
    count_choices(stack.layers(), stack.choices_LRK(), stack.layout().copies, in.experts, in.batch, in.routing);
}

}  // namespace

at::Tensor StackGraphs::run(const GraphedPass& pass) {
  const auto& in = pass.input;
  if (in.cache) return steps_.run(pass, /*may_record=*/!is_failed_);
  steps_.clear(), arena_ = KvArena();  // training needs the memory of generation, recorded or not
  auto layout = Layout::of(in.batch, in.rotary_width, in.ropes, in.device, kLongestStep);
  const auto stack = recording(pass, layout);
  if (!stack) {
    ++counts_.eager;
    return eager(pass, std::move(layout));
  }
  ++counts_.replayed;
  const auto results = aten::run(stack, layout);
  if (!in.routing.empty()) put_routing(*stack, results, in);
  return results.front();
}

std::shared_ptr<RecordedStack> StackGraphs::recording(const GraphedPass& pass, const Layout& layout) {
  if (pass.key.empty() || !c10::GradMode::is_enabled()) return nullptr;
  bool is_new = false;
  auto& entry = known(with_sizes(pass, layout), is_new);
  if (!entry.stack && !is_new && !is_failed_) entry.stack = record(pass, layout);
  const auto stack = entry.stack;
  drop_old();
  return stack;
}

std::shared_ptr<RecordedStack> StackGraphs::record(const GraphedPass& pass, const Layout& layout) {
  try {
    auto pool = pool_.lock();
    if (!pool) pool_ = pool = new_graph_pool();
    auto stack = std::make_shared<RecordedStack>(pass, layout, pool);
    check_replay(*stack, pass, layout);
    ++counts_.recorded;
    return stack;
  } catch (const std::exception& error) {
    is_failed_ = true;
    const std::string text = error.what();
    log::warning("[graphs] a pass cannot be recorded, so all operators are started one by one: ",
                 text.substr(0, text.find('\n')));
    return nullptr;
  }
}

StackGraphs::Known& StackGraphs::known(Key key, bool& is_new) {
  const auto found = std::find_if(known_.begin(), known_.end(), [&](const Known& entry) { return entry.key == key; });
  is_new = found == known_.end();
  if (is_new)
    known_.push_front({.key = std::move(key)});
  else
    known_.splice(known_.begin(), known_, found);
  return known_.front();
}

void StackGraphs::drop_old() {
  size_t recorded = 0;
  std::erase_if(known_, [&](const Known& entry) { return entry.stack && ++recorded > kMostRecorded; });
  if (known_.size() > kMostKnown) known_.resize(kMostKnown);
}

}  // namespace evenkeel::nn::aten
