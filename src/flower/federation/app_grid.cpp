#include "flower/federation/app_grid.h"

#include <algorithm>

#include "base/plain/log.h"
#include "base/plain/text.h"
#include "base/system/interrupt.h"

namespace evenkeel::flower {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kLongestPoll_s = 0.5;

LineSocket accepted(LineListener& listener, const StopWaiting& stop) {
  auto lines = listener.accept(stop);
  if (!lines) throw Interrupted("stopped while waiting for the Flower app");
  return std::move(*lines);
}

uint64_t node_id(const JsonView& view) {
  view.require(view.json().is_number_unsigned(), " is no node's id");
  return view.json().get<uint64_t>();
}

const Arrays* arrays_in(const Content& content) {
  for (const auto& [name, record] : content.records())
    if (const auto* arrays = std::get_if<Arrays>(&record); arrays && arrays->packed) return arrays;
  return nullptr;
}

}  // namespace

AppGrid::AppGrid(const fs::path& socket, StopWaiting stop)
    : stop_(std::move(stop)), listener_(socket), lines_(accepted(listener_, stop_)) {
  const auto hello = ask({{"op", "hello"}, {"version", kAppProtocol}, {"program", concat("evenkeel ", version())}});
  const JsonView answer(hello.json, "the Flower app's greeting", kData);
  answer.require(answer.at("version").integer() == kAppProtocol, ".version is ", answer.at("version").integer(),
                 ", expected ", kAppProtocol);
  log::info("[serve] driven by a Flower app, flwr ", shown(answer.string_or("flwr", "?")));
}

Line AppGrid::ask(OrderedJson request, const std::shared_ptr<SharedMemory>& memory) {
  const auto op = request["op"].get<std::string>();
  std::optional<Line> answer;
  try {
    lines_.send(std::move(request), memory);
    answer = lines_.receive({});
  } catch (const Error& error) {
    if (error.kind() != kIo) throw;
  }
  if (!answer) throw Interrupted("the Flower app is gone");
  const JsonView view(answer->json, "the Flower app", kData);
  EK_CHECK(view.flag_or("ok", false), kData, "the Flower app, asked for ", op, ": ",
           shown(view.string_or("error", "no answer"), 300));
  return std::move(*answer);
}

std::vector<NodeInfo> AppGrid::nodes() {
  const auto line = ask({{"op", "nodes"}});
  std::vector<NodeInfo> nodes;
  for (const auto& node : JsonView(line.json, "the Flower app", kData).at("nodes").items()) {
    NodeInfo info;
    info.id = node_id(node.at("id"));
    info.name = node.string_or("name", "");
    info.online = true;
    if (info.name.empty()) info.name = concat("node ", info.id);
    nodes.push_back(std::move(info));
  }
  return nodes;
}

/// Returns one shared memory for all nodes that are sent the same arrays.
const std::shared_ptr<SharedMemory>& AppGrid::memory_of(const Content& content) {
  const auto* arrays = arrays_in(content);
  if (!arrays) {
    memory_.reset();
    packed_.reset();
  } else if (arrays->packed != packed_) {
    memory_ = images_of(content);
    packed_ = arrays->packed;
  }
  return memory_;
}

std::string AppGrid::send(uint64_t node, const Content& content, SendOptions options) {
  const auto line = ask({{"op", "send"},
                         {"node", node},
                         {"type", options.type},
                         {"group", options.group},
                         {"ttl", options.ttl_s},
                         {"records", records_of(content)}},
                        memory_of(content));
  auto message = JsonView(line.json, "the Flower app", kData).at("message").string();
  sent_[message] = {node, std::move(options.place)};
  return message;
}

std::optional<Arrival> AppGrid::wait(Clock::time_point deadline) {
  const double left = std::chrono::duration<double>(deadline - Clock::now()).count();
  if (stop_ && stop_()) throw Interrupted("stopped");
  const auto line = ask({{"op", "poll"}, {"wait", std::clamp(left, 0.0, kLongestPoll_s)}});
  const JsonView view(line.json, "the Flower app", kData);
  const auto found = view.find("arrival");
  if (!found) return std::nullopt;
  Arrival arrival{.message_id = found->at("message").string()};
  const auto sent = sent_.extract(arrival.message_id);
  if (sent.empty()) return std::nullopt;
  arrival.node = sent.mapped().node;
  if (found->at("kind").string() != "reply") {
    arrival.kind = Arrival::Kind::kError;
    arrival.code = static_cast<ErrorCode>(found->integer_or("code", 0));
    arrival.reason = found->string_or("error", "no reason");
    return arrival;
  }
  try {
    arrival.content = read_records(view.at("records"), line.memory.get(), sent.mapped().place);
    arrival.bytes = line.memory ? line.memory->bytes().size() : 0;
  } catch (const Error& error) {
    if (error.kind() == kIo) throw;  // of this machine, not of the reply
    arrival.kind = Arrival::Kind::kRefused;
    arrival.reason = error.what();
  }
  return arrival;
}

void AppGrid::forget(const std::string& message_id) {
  if (sent_.erase(message_id) == 0) return;
  try {
    ask({{"op", "forget"}, {"message", message_id}});
  } catch (const std::exception& error) {  // an app that is gone has forgotten the message anyway
    log::warning("[serve] ", error.what());
  }
}

void AppGrid::done(const fs::path& folder) { ask({{"op", "done"}, {"folder", fs::absolute(folder).string()}}); }
void AppGrid::failed(const std::string& why) { ask({{"op", "failed"}, {"error", why}}); }

}  // namespace evenkeel::flower
