#include "fed/exchange/message.h"

#include <ATen/ATen.h>

#include <bit>
#include <cstring>

namespace evenkeel::fed {
namespace {

constexpr int64_t kLength = 8, kAlign = 64;
constexpr int64_t kMostHeader = int64_t{256} << 20;  // predictions of a long evaluation are the longest
static_assert(std::endian::native == std::endian::little);

// The keys under which a header holds its parts; one of the kinds of each variant is there.
constexpr std::string_view kNews = "news", kTask = "task", kReply = "reply";
constexpr std::string_view kTrain = "train", kSumGradients = "sum_gradients", kScore = "score";
constexpr std::string_view kReport = "report", kScored = "scored";

std::string text_of(OrderedJson header, const lora::EncodedPayload& payload) {
  header["parts"] = payload.parts;
  return header.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

at::Tensor in_bytes(std::string text, const lora::EncodedPayload& payload) {
  text.resize((kLength + text.size() + kAlign - 1) / kAlign * kAlign - kLength, ' ');
  auto bytes_N = at::empty({kLength + static_cast<int64_t>(text.size()) + payload.size()}, at::kByte);
  auto* out = bytes_N.mutable_data_ptr<uint8_t>();
  const uint64_t length = text.size();
  std::memcpy(out, &length, kLength);
  std::memcpy(out + kLength, text.data(), text.size());
  if (payload.size() > 0)
    std::memcpy(out + kLength + text.size(), payload.bytes.const_data_ptr(), static_cast<size_t>(payload.size()));
  return bytes_N;
}

/// Writes the struct that the variant holds, under its own key.
template <typename... Kinds>
void write_kind(OrderedJson& header, const std::variant<Kinds...>& value,
                std::initializer_list<std::string_view> keys) {
  std::visit([&](const auto& kind) { header[std::string(keys.begin()[value.index()])] = record::write(kind); }, value);
}

template <typename Kind, typename... Kinds>
bool read_kind(const JsonView& header, std::string_view key, std::variant<Kinds...>& value) {
  const auto found = header.find(key);
  if (found) value = record::read<Kind>(*found);
  return found.has_value();
}

StateUpdate news_of(const JsonView& header, lora::EncodedPayload payload) {
  return {.round = header.at("round").integer(0), .whole = header.at("whole").flag(), .payload = std::move(payload)};
}

Task task_of(const JsonView& header, lora::EncodedPayload payload) {
  Task task{.round = header.at("round").integer(0),
            .client = record::read<methods::ClientProfile>(header.at("client")),
            .payload = std::move(payload)};
  header.require(read_kind<Train>(header, kTrain, task.ask) ||
                     read_kind<SumGradients>(header, kSumGradients, task.ask) ||
                     read_kind<Score>(header, kScore, task.ask),
                 ": a task that asks for nothing known");
  return task;
}

Reply reply_of(const JsonView& header, lora::EncodedPayload payload) {
  Reply reply{.client = header.at("client").integer(kPooledData)};
  if (payload.size() > 0) reply.upload = std::move(payload);
  header.require(
      read_kind<train::LocalReport>(header, kReport, reply.report) || read_kind<Scored>(header, kScored, reply.report),
      ": a reply without a report");
  return reply;
}

lora::EncodedPayload payload_of(const JsonView& header, const at::Tensor& bytes_N) {
  lora::EncodedPayload payload;
  if (bytes_N.defined() && bytes_N.numel() > 0) payload.bytes = bytes_N;
  for (const auto& part : header.at("parts").members()) payload.parts[part.key()] = part.integer(0);
  return payload;
}

/// Returns the payload of a message of `reply`; empty if there is none.
lora::EncodedPayload payload_in(const Reply& reply) {
  const auto* payload = encoded_payload(reply.upload);
  return payload ? *payload : lora::EncodedPayload{};
}

/// Returns the header's length. \throws kData when the message is shorter
int64_t header_length(const at::Tensor& bytes_N, const std::string& source) {
  const int64_t bytes = bytes_N.numel();
  uint64_t length = 0;
  if (bytes >= kLength) std::memcpy(&length, bytes_N.const_data_ptr(), kLength);
  EK_CHECK(bytes >= kLength && length <= static_cast<uint64_t>(std::min(bytes - kLength, kMostHeader)), kData, source,
           ": no message: ", bytes, " bytes, a header of ", length);
  return static_cast<int64_t>(length);
}

}  // namespace

int64_t total_bytes(const Traffic& traffic) {
  int64_t sum = 0;
  for (const auto& [content, bytes] : traffic) sum += bytes;
  return sum;
}

std::string header_of(const StateUpdate& news) {
  return text_of({{"message", kNews}, {"round", news.round}, {"whole", news.whole}}, news.payload);
}

std::string header_of(const Task& task) {
  OrderedJson header = {{"message", kTask}, {"round", task.round}, {"client", record::write(task.client)}};
  write_kind(header, task.ask, {kTrain, kSumGradients, kScore});
  return text_of(std::move(header), task.payload);
}

std::string header_of(const Reply& reply) {
  OrderedJson header = {{"message", kReply}, {"client", reply.client}};
  write_kind(header, reply.report, {kReport, kScored});
  return text_of(std::move(header), payload_in(reply));
}

at::Tensor to_bytes(const StateUpdate& news) { return in_bytes(header_of(news), news.payload); }
at::Tensor to_bytes(const Task& task) { return in_bytes(header_of(task), task.payload); }
at::Tensor to_bytes(const Reply& reply) { return in_bytes(header_of(reply), payload_in(reply)); }

Message from_parts(std::string_view text, const at::Tensor& payload_N, const std::string& source) {
  EK_CHECK(static_cast<int64_t>(text.size()) <= kMostHeader, kData, source, ": a header of ", text.size(), " bytes");
  const Json json = parse_json(text, source, kData);
  const JsonView header(json, source, kData);
  auto payload = payload_of(header, payload_N);
  const auto& kind = header.at("message").string();
  if (kind == kNews) return news_of(header, std::move(payload));
  if (kind == kTask) return task_of(header, std::move(payload));
  EK_CHECK(kind == kReply, kData, source, ": a message of unknown kind \"", kind, "\"");
  return reply_of(header, std::move(payload));
}

Message from_bytes(const at::Tensor& bytes_N, const std::string& source) {
  const int64_t length = header_length(bytes_N, source);
  const std::string_view text(static_cast<const char*>(bytes_N.const_data_ptr()) + kLength,
                              static_cast<size_t>(length));
  return from_parts(text, bytes_N.narrow(0, kLength + length, bytes_N.numel() - kLength - length), source);
}

}  // namespace evenkeel::fed
