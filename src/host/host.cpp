#include "host/host.h"

#include <algorithm>
#include <utility>

#include "base/plain/error.h"
#include "base/plain/files.h"

namespace evenkeel::host {
namespace {

constexpr int64_t kProtocol = 1;
constexpr double kSecondsToStart = 120;  // with torch, on a busy machine
constexpr const char* kDescriptionOf = "the description of a method in Python";

ErrorKind kind_in(const JsonView& error) {
  for (const auto kind : {kConfig, kData, kShape, kNumeric, kIo})
    if (error.string_or("kind", "data") == to_string(kind)) return kind;
  return kData;
}

}  // namespace

void throw_if_failed(const JsonView& message, const std::string& who) {
  const auto error = message.find("error");
  if (error) fail(kind_in(*error), who, ": ", error->at("text").string());
}

Json Host::answered(OrderedJson question, const std::string& who, double seconds) {
  connection_->set_wait(who, seconds);
  connection_->send(std::move(question));
  auto answer = connection_->receive();
  throw_if_failed(JsonView(answer, who), who);
  return answer;
}

Connection& Host::connection() {
  if (connection_ && connection_->is_usable()) return *connection_;
  objects_.clear();
  connection_ = std::make_unique<Connection>(source_);
  const auto who = concat("method ", source_.class_name, " of ", source_.file.string());
  const OrderedJson hello{
      {"hello", source_.file.string()}, {"class", source_.class_name}, {"protocol", kProtocol}, {"version", version()}};
  try {
    const Json answer = answered(hello, who, kSecondsToStart);
    auto made = methods::read_description(JsonView(answer, kDescriptionOf, kConfig).at("description"));
    EK_CHECK(!description_ || made->json == description_->json, kConfig, who, " has changed while the program ran");
    description_ = std::move(made);
  } catch (...) {
    connection_.reset();
    throw;
  }
  return *connection_;
}

std::shared_ptr<const methods::MethodDescription> Host::describe() {
  const std::scoped_lock lock(mutex_);
  connection();
  return description_;
}

int64_t Host::object(const std::string& options) {
  connection();
  if (const auto known = objects_.find(options); known != objects_.end()) return known->second;
  const auto who = concat("method.", description_->name);
  const Json answer =
      answered({{"make", OrderedJson::parse(options)}}, who, std::max(kSecondsToStart, description_->seconds));
  return objects_[options] = JsonView(answer, who).at("made").integer();
}

}  // namespace evenkeel::host
