/// \file  Counts the operators of LibTorch that compute something, for tests. On a GPU each operator launches one or
/// more kernels, and small steps take as long as their launches.
#pragma once

#include <ATen/Context.h>
#include <ATen/record_function.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

namespace evenkeel::testing {

/// Counts the operators that this thread calls while the object lives. Views, allocations and operators that only call
/// others are left out. REQUIRES that the thread has no other object of this class.
class OperatorCount {
 public:
  OperatorCount() {
    state() = {};
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&OperatorCount::begin, &OperatorCount::end).scopes({at::RecordScope::FUNCTION}));
  }
  ~OperatorCount() { at::removeCallback(handle_); }
  OperatorCount(const OperatorCount&) = delete;
  OperatorCount& operator=(const OperatorCount&) = delete;

  /// Returns the number of calls of each operator since the construction or the last take().
  static std::map<std::string, int64_t> take() { return std::exchange(state().counts, {}); }

 private:
  struct State {
    std::map<std::string, int64_t> counts{};
    int running = 0;  // operators that compute something and have not returned
  };
  static State& state() {
    thread_local State one;
    return one;
  }

  /// Returns true for views, allocations, and operators that only call others.
  static bool is_passive(const std::string& name) {
    static const std::set<std::string> kPassive{
        "alias",          "as_strided",  "clone",   "contiguous", "detach",     "empty",          "empty_like",
        "empty_strided",  "expand",      "flatten", "full",       "full_like",  "item",           "lift_fresh",
        "narrow",         "new_empty",   "ones",    "ones_like",  "permute",    "requires_grad_", "reshape",
        "_reshape_alias", "result_type", "select",  "slice",      "split",      "squeeze",        "split_with_sizes",
        "sum_to_size",    "t",           "to",      "_to_copy",   "transpose",  "unbind",         "_unsafe_view",
        "unsqueeze",      "view",        "view_as", "zeros",      "zeros_like", "resolve_conj",   "resolve_neg",
        "unflatten",      "expand_as"};
    return !name.starts_with("aten::") || kPassive.contains(name.substr(6));
  }
  /// In deterministic mode, a GPU writes by index through a sort.
  static std::string counted_name(const std::string& name) {
    const bool writes = name == "aten::index_copy_" || name == "aten::scatter_";
    return writes && at::globalContext().deterministicAlgorithms() ? name + " by sorting" : name;
  }

  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& call) {
    auto& now = state();
    const std::string name = call.name();
    if (is_passive(name)) return nullptr;
    // A number that becomes a tensor does so on the CPU.
    if (now.running++ == 0 && name != "aten::scalar_tensor") ++now.counts[counted_name(name)];
    return nullptr;
  }
  static void end(const at::RecordFunction& call, at::ObserverContext*) {
    if (!is_passive(call.name())) --state().running;
  }

  at::CallbackHandle handle_;
};

/// Returns the estimated number of kernel launches of an operator on a GPU, from LibTorch's sources.
inline int64_t launches_of(const std::string& name) {
  static const std::map<std::string, int64_t> kLaunches{{"aten::_grouped_mm", 2},
                                                        {"aten::sort", 4},
                                                        {"aten::index_copy_ by sorting", 14},
                                                        {"aten::scatter_ by sorting", 16},
                                                        {"aten::constant_pad_nd", 2},
                                                        {"aten::segment_reduce", 5},
                                                        {"aten::topk", 2}};
  const auto found = kLaunches.find(name);
  return found == kLaunches.end() ? 1 : found->second;
}

inline int64_t total(const std::map<std::string, int64_t>& counts) {
  int64_t sum = 0;
  for (const auto& [name, count] : counts) sum += count;
  return sum;
}

inline int64_t launches(const std::map<std::string, int64_t>& counts) {
  int64_t sum = 0;
  for (const auto& [name, count] : counts) sum += count * launches_of(name);
  return sum;
}

}  // namespace evenkeel::testing
