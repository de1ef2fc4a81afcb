// Computes the operators of a simulated GPU with those of the processor, on the same memory. It checks what CUDA
// checks: all tensors of an operator are on one device, and an operator without a deterministic algorithm is an error.
// What CUDA computes differently from the processor is in products.cpp, attention.cpp and norm.cpp.

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/ForeachUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <torch/library.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "device_memory.h"
#include "recorder.h"
#include "transfers.h"

namespace evenkeel::simulated_gpu {
namespace {

using torch::jit::Stack;

// Their results have sizes or values that the host reads.
const std::set<std::string> kWaiting = {"aten::nonzero",  "aten::masked_select",      "aten::bincount",
                                        "aten::_unique2", "aten::unique_consecutive", "aten::equal",
                                        "aten::histc",    "aten::repeat_interleave"};
// The operators of CUDA that are errors under deterministic algorithms (Context::alertNotDeterministic).
const std::set<std::string> kNotDeterministic = {"aten::bincount",
                                                 "aten::histc",
                                                 "aten::kthvalue",
                                                 "aten::put_",
                                                 "aten::median",
                                                 "aten::cumsum",
                                                 "aten::_segment_reduce_backward"};
// Their indices may be on the processor.
const std::set<std::string> kTakesAnyIndex = {"aten::index", "aten::index_put_", "aten::_index_put_impl_"};

/// A tensor argument of an operator, and the tensor of the processor in its place.
struct Argument {
  at::Tensor original, replacement;
};

/// The call of one operator, with its tensors moved to the processor.
class Call {
 public:
  Call(const c10::OperatorHandle& op, Stack& stack) : op_(op), stack_(stack) {
    const size_t count = op.schema().arguments().size();
    begin_ = stack.size() - count;
    for (size_t i = 0; i < count; ++i) replace(stack[begin_ + i], op.schema().arguments()[i]);
    check_determinism();
  }

  void run() {
    const Stack inputs(stack_.begin() + static_cast<std::ptrdiff_t>(begin_), stack_.end());
    op_.callBoxed(stack_);
    for (size_t i = begin_; i < stack_.size(); ++i) {
      auto& value = stack_[i];
      if (value.isTensor()) value = moved_back(value.toTensor());
      if (value.isTensorList()) {
        std::vector<at::Tensor> all;
        for (const auto& each : value.toTensorVector()) all.push_back(moved_back(each));
        value = all;
      }
    }
    grow();
    if (is_recorded()) keep(inputs);
  }

 private:
  /// Records the call, on tensors of the processor that share the memory of the GPU's.
  void keep(Stack inputs) {
    for (auto& input : inputs)
      for (const auto& [original, replacement] : arguments_)  // results that grew had memory of their own
        if (input.isTensor() && input.toTensor().unsafeGetTensorImpl() == replacement.unsafeGetTensorImpl())
          input = on_processor(original);
    record([op = op_, inputs, memory = memory_] {
      Stack stack = inputs;
      op.callBoxed(stack);
      auto place = memory.begin();
      const auto put = [&](const at::Tensor& result) {
        if (place->defined()) place->copy_(result);
        ++place;
      };
      for (const auto& value : stack) {
        if (value.isTensor()) put(value.toTensor());
        if (value.isTensorList())
          for (const auto& each : value.toTensorVector()) put(each);
      }
    });
  }

  void replace(c10::IValue& value, const c10::Argument& argument) {
    const bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    if (value.isTensor()) {
      value = replaced(value.toTensor(), written);
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> all;
      for (const auto& each : value.toTensorVector()) all.push_back(replaced(each, written));
      value = all;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> all;
      for (const std::optional<at::Tensor> each : value.toOptionalTensorList())
        all.push_back(each ? std::optional(replaced(*each, false)) : std::nullopt);
      value = all;
    } else if (value.isDevice()) {
      device_ = value.toDevice();
      value = c10::Device(c10::kCPU);
    }
  }

  at::Tensor replaced(const at::Tensor& tensor, bool written) {
    if (!tensor.defined()) return tensor;
    if (!tensor.is_cuda()) {
      TORCH_CHECK(tensor.dim() == 0 || kTakesAnyIndex.contains(op_.schema().name()),
                  "simulated GPU: ", op_.schema().name(), " has a tensor of the processor of sizes ", tensor.sizes(),
                  " beside tensors of the GPU");
      return tensor;
    }
    TORCH_CHECK(!device_ || *device_ == tensor.device(), "simulated GPU: ", op_.schema().name(), " has tensors of ",
                *device_, " and ", tensor.device());
    device_ = tensor.device();
    floating_ = floating_ || tensor.is_floating_point();
    // A result of no elements may be resized by the operator.
    auto replacement = written && tensor.numel() == 0 ? at::empty({0}, tensor.scalar_type()) : on_processor(tensor);
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) replacement.unsafeGetTensorImpl()->set_wrapped_number(true);
    arguments_.push_back({tensor, replacement});
    return replacement;
  }

  void check_determinism() const {
    const auto& name = op_.schema().name();
    const bool refused = at::globalContext().deterministicAlgorithms() && kNotDeterministic.contains(name) &&
                         (name != "aten::cumsum" || floating_);
    TORCH_CHECK(!refused, name, " does not have a deterministic implementation");
  }

  /// Returns the argument that `result` is, or a copy of `result` on the GPU.
  at::Tensor moved_back(const at::Tensor& result) {
    memory_.emplace_back();
    if (!result.defined() || !result.is_cpu() || !device_) return result;
    for (const auto& [original, replacement] : arguments_)
      if (result.unsafeGetTensorImpl() == replacement.unsafeGetTensorImpl()) return original;
    auto moved = on_gpu(result, *device_);
    memory_.back() = on_processor(moved);
    return moved;
  }

  /// Gives results that had no elements their sizes and values.
  void grow() const {
    for (const auto& [original, replacement] : arguments_)
      if (original.numel() == 0 && replacement.numel() > 0) {
        original.resize_(replacement.sizes());
        on_processor(original).copy_(replacement);
      }
  }

  const c10::OperatorHandle& op_;
  Stack& stack_;
  std::vector<at::Tensor> memory_{};  // of new results; undefined for results that are arguments
  size_t begin_ = 0;
  bool floating_ = false;
  std::optional<c10::Device> device_{};
  std::vector<Argument> arguments_{};
};

void compute(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const Operator counted;
  if (kWaiting.contains(op.schema().name())) wait();
  Call(op, *stack).run();
}

/// Returns whether CUDA computes an operator on lists as one operator. Otherwise it computes one for each tensor.
bool is_one_operator(const std::string& name, const std::vector<std::vector<at::Tensor>>& lists) {
  if (lists.empty() || lists.front().empty()) return false;
  const std::vector<at::TensorList> all(lists.begin(), lists.end());
  return at::native::_check_tensors_share_device_and_dtype(all, name == "aten::_foreach_copy_") &&
         at::native::_check_tensors_share_sizes_and_strides(all);
}

/// Computes an operator on lists of tensors, as _foreach_add_.
void compute_lists(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  std::vector<std::vector<at::Tensor>> lists;
  for (const auto& value : torch::jit::last(*stack, op.schema().arguments().size()))
    if (value.isTensorList()) lists.push_back(value.toTensorVector());
  if (is_one_operator(op.schema().name(), lists)) return compute(op, keys, stack);
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);  // which calls one operator for each tensor
}

/// Returns the names of all operators on lists, with their overloads.
std::vector<std::string> operators_on_lists() {
  const std::string scope = "aten::";
  std::vector<std::string> names;
  for (const auto& [name, overload] : c10::Dispatcher::singleton().getAllOpNames())
    if (name.starts_with(scope + "_foreach_"))
      names.push_back(name.substr(scope.size()) + (overload.empty() ? "" : "." + overload));
  return names;
}

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<c10::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(*device);
  return at::detail::empty_generic(sizes, c10::GetAllocator(c10::DeviceType::CUDA),
                                   c10::DispatchKeySet(c10::DispatchKey::CUDA), c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(*device);
  return at::detail::empty_strided_generic(sizes, strides, c10::GetAllocator(c10::DeviceType::CUDA),
                                           c10::DispatchKeySet(c10::DispatchKey::CUDA), c10::dtype_or_default(type));
}

void hold(const at::Tensor& tensor, int64_t bytes) {
  auto& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  if (static_cast<int64_t>(storage.nbytes()) >= bytes) return;
  const c10::DeviceGuard guard(tensor.device());
  auto data = c10::GetAllocator(c10::DeviceType::CUDA)->allocate(static_cast<size_t>(bytes));
  if (storage.nbytes() > 0) std::memcpy(accessible(data.get()), accessible(storage.mutable_data()), storage.nbytes());
  storage.set_data_ptr_noswap(std::move(data));
  storage.set_nbytes(static_cast<size_t>(bytes));
}

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef sizes, std::optional<at::MemoryFormat>) {
  self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  hold(self, (self.storage_offset() + self.numel()) * static_cast<int64_t>(self.element_size()));
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef sizes,
                        at::IntArrayRef strides) {
  TORCH_CHECK(source.device() == self.device(), "simulated GPU: set_ of a storage of ", source.device());
  at::native::checkSetStorage(self, std::move(source), offset, sizes, strides);
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  if (strides.data() != nullptr)
    self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  else
    self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.element_size());
  return set_storage(self, std::move(source), 0, {count}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Scalar read_scalar(const at::Tensor& self) {
  wait();
  const at::RecordFunctionGuard not_recorded(false);
  return at::_local_scalar_dense(on_processor(self));
}

}  // namespace

TORCH_LIBRARY_IMPL(_, CUDA, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&compute>()); }

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  for (const auto& name : operators_on_lists())
    m.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&compute_lists>());
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("resize_", &resize);
  m.impl("set_.source_Storage", &set_whole_storage);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("set_.source_Tensor", &set_tensor);
  m.impl("_local_scalar_dense", &read_scalar);
  m.impl("copy_", &copy);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef)>(&at::native::view));
  m.impl("_reshape_alias",
         static_cast<at::Tensor (*)(const at::Tensor&, at::IntArrayRef, at::IntArrayRef)>(&at::native::_reshape_alias));
  m.impl("unfold", &at::native::unfold);
}

}  // namespace evenkeel::simulated_gpu
