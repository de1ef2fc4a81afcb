#include "models/graph_key.h"

#include <ATen/ATen.h>

#include <bit>
#include <string>

namespace evenkeel::models {
namespace {

/// Collects the key.
class Key {
 public:
  void add(int64_t number) { numbers_.push_back(number); }
  void add(double number) { add(std::bit_cast<int64_t>(number)); }
  /// Names are as good as their hashes: all tensors of a site are told apart by their addresses as well.
  void add(const std::string& name) { add(static_cast<int64_t>(std::hash<std::string>()(name))); }
  void add(const at::Tensor& tensor) {
    add(int64_t{tensor.defined()});
    if (!tensor.defined()) return;
    add_memory(tensor);
    if (!tensor.requires_grad()) return add(int64_t{0});
    add(int64_t{1});
    if (tensor.is_leaf() && tensor.grad().defined())
      add_memory(tensor.grad());
    else
      is_complete_ = false;
  }
  void add(const lora::AdapterState* state) {
    add(int64_t{state != nullptr});
    if (!state) return;
    for (const auto& [site, factors] : *state) {
      add(site), add(factors.a), add(factors.b), add(factors.core), add(factors.scaling);
    }
  }
  std::vector<int64_t> numbers() && { return is_complete_ ? std::move(numbers_) : std::vector<int64_t>(); }

 private:
  void add_memory(const at::Tensor& tensor) {
    add(std::bit_cast<int64_t>(tensor.const_data_ptr()));
    add(static_cast<int64_t>(tensor.scalar_type()));
    for (const int64_t size : tensor.sizes()) add(size);
    for (const int64_t stride : tensor.strides()) add(stride);
  }

  std::vector<int64_t> numbers_;
  bool is_complete_ = true;
};

}  // namespace

std::vector<int64_t> graph_key(const ForwardOptions& options) {
  Key key;
  const auto& router = options.router;
  key.add(static_cast<int64_t>(options.compute.inner));
  key.add(router.top_k), key.add(static_cast<int64_t>(router.gate_norm));
  key.add(int64_t{router.records_logits});
  key.add(router.num_candidates), key.add(static_cast<int64_t>(router.mode)), key.add(int64_t{router.raw_gates});
  for (const auto& [layer, phi_E] : router.modulation) key.add(layer), key.add(phi_E);
  key.add(router.output_scale);
  key.add(options.adapters), key.add(options.base_change);
  return std::move(key).numbers();
}

}  // namespace evenkeel::models
