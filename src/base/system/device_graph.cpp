#include "base/system/device_graph.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <torch/version.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "base/system/device.h"

namespace evenkeel {
namespace {

constexpr const char *kFunction = "evenkeel_graph_plugin", *kLibrary = "libevenkeel_cuda_graphs.so",
                     *kVariable = "EVENKEEL_GRAPHS_LIBRARY", *kMost = "EVENKEEL_MOST_GRAPHS";
constexpr std::string_view kRemedy = "; `make gpu` builds it (docs/gpu.md)";

/// The library, or why there is none.
struct Found {
  const GraphPlugin* plugin = nullptr;
  std::string why_not{};
};

std::string minor_of(std::string_view version) {
  const auto first = version.find('.');
  return std::string(version.substr(0, version.find_first_not_of("0123456789", first + 1)));
}

std::string library_named() {
  const char* named = std::getenv(kVariable);
  return named != nullptr ? named : "";
}

std::string library_beside_program() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / kLibrary).string();
}

Found checked(const GraphPlugin* plugin, const std::string& path) {
  if (plugin == nullptr) return {nullptr, concat(path, " cannot record graphs on this machine")};
  if (plugin->interface != kGraphInterface)
    return {nullptr, concat(path, " has interface ", plugin->interface, ", needed: ", kGraphInterface, kRemedy)};
  if (minor_of(plugin->torch) != minor_of(TORCH_VERSION))
    return {nullptr,
            concat(path, " was built for torch ", plugin->torch, ", this program for ", TORCH_VERSION, kRemedy)};
  return {plugin, {}};
}

Found load() {
  using Function = const GraphPlugin*();
  const auto named = library_named();
  // A simulated GPU brings its own (tests/gpu).
  if (void* own = named.empty() ? ::dlsym(RTLD_DEFAULT, kFunction) : nullptr; own != nullptr)
    return checked(reinterpret_cast<Function*>(own)(), "the library of the simulated GPU");
  const auto path = named.empty() ? library_beside_program() : named;
  if (!std::filesystem::exists(path)) return {nullptr, concat("there is no ", path, kRemedy)};
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {nullptr, concat(path, " cannot be loaded: ", ::dlerror(), kRemedy)};
  void* function = ::dlsym(library, kFunction);
  if (function == nullptr) return {nullptr, concat(path, " is another library: it has no ", kFunction, "()", kRemedy)};
  return checked(reinterpret_cast<Function*>(function)(), path);
}

const Found& found() {
  static const Found once = load();
  return once;
}

/// Makes another stream the current one while it lives, because work of the default stream cannot be recorded. All
/// recordings of a device use the same one, so that libraries keep one workspace for them.
class RecordingStream {
 public:
  explicit RecordingStream(c10::Device device)
      : guard_(device.type()), before_(guard_.exchangeStream(stream_of(guard_, device))) {}
  ~RecordingStream() { guard_.exchangeStream(before_); }
  RecordingStream(const RecordingStream&) = delete;
  RecordingStream& operator=(const RecordingStream&) = delete;

 private:
  static c10::Stream stream_of(const c10::impl::VirtualGuardImpl& guard, c10::Device device) {
    static std::map<c10::DeviceIndex, c10::Stream> streams;
    const auto known = streams.find(device.index());
    if (known != streams.end()) return known->second;
    return streams.emplace(device.index(), guard.getStreamFromGlobalPool(device)).first->second;
  }

  c10::impl::VirtualGuardImpl guard_;
  c10::Stream before_;
};

/// Counts a recording. EVENKEEL_MOST_GRAPHS limits them, so that a run can be compared with one whose recordings fail.
void count_recording() {
  static int64_t made = 0;
  const char* text = std::getenv(kMost);
  const auto most = parse_number<int64_t>(text != nullptr ? text : "");
  EK_CHECK(!most || made < *most, kConfig, kMost, " is ", text);
  ++made;
}

/// Ends a recording that failed.
void abandon(RecordedGraph& graph) {
  try {
    graph.end();
  } catch (const std::exception&) {  // the error before it says why
  }
}

/// Records and replays one operator. \return why that failed; empty if it did not
std::string tried(c10::Device device) {
  try {
    const auto number = at::zeros({3}, at::device(device).dtype(at::kFloat));
    number.add_(1);  // so that the kernel is loaded
    const DeviceGraph graph(device, new_graph_pool(), [&] { number.add_(2); });
    graph.replay(), graph.replay();
    return number.sum().item<double>() == 15 ? "" : "a graph computes something else than its operators";
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return concat("recording a graph fails: ", text.substr(0, text.find('\n')));
  }
}

}  // namespace

std::string why_no_graphs(c10::Device device) {
  if (device.is_cpu()) return "graphs are of a GPU's work";
  if (found().plugin == nullptr) return found().why_not;
  static std::map<c10::DeviceIndex, std::string> results;
  const auto known = results.find(device.index());
  return known != results.end() ? known->second : results[device.index()] = tried(device);
}

std::shared_ptr<SharedGraphPool> new_graph_pool() {
  EK_CHECK(found().plugin, kConfig, "no graph can be recorded: ", found().why_not);
  return std::make_shared<SharedGraphPool>(SharedGraphPool{found().plugin->make_pool()});
}

DeviceGraph::DeviceGraph(c10::Device device, std::shared_ptr<SharedGraphPool> pool, const std::function<void()>& work)
    : pool_(std::move(pool)), graph_(found().plugin->make()) {
  count_recording();
  synchronize(device);
  const RecordingStream stream(device);
  try {
    graph_->begin(pool_->name);
    work();
  } catch (...) {
    abandon(*graph_);
    throw;
  }
  graph_->end();
}

}  // namespace evenkeel
