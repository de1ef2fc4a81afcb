#include <openssl/rand.h>
#include <time.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "base/plain/base64.h"
#include "base/plain/error.h"
#include "base/plain/text.h"
#include "flower/format/keys.h"

namespace evenkeel::flower {
namespace {

// Seconds. A caller signs its key and the time at most once a minute. A server accepts a time that is at most 5 s ahead
// of its own clock and 300 s old (TIMESTAMP_TOLERANCE of flwr 1.41), plus the same 5 s.
constexpr double kSignatureLife = 60, kYoungest = -5, kOldest = 305;
constexpr size_t kMostKnown = 8192;  // verified signatures that are remembered

/// Removes a number of exactly `digits` digits from the front of `text`.
std::optional<int> take_number(std::string_view& text, size_t digits) {
  int value = 0;
  if (text.size() < digits) return {};
  const auto [end, error] = std::from_chars(text.data(), text.data() + digits, value);
  if (error != std::errc() || end != text.data() + digits || text[0] == '-') return {};
  text.remove_prefix(digits);
  return value;
}

bool take_mark(std::string_view& text, char mark) {
  if (text.empty() || text[0] != mark) return false;
  text.remove_prefix(1);
  return true;
}

/// Removes a fraction of a second, such as ".123456".
double take_fraction(std::string_view& text) {
  if (!take_mark(text, '.')) return 0;
  double value = 0, unit = 0.1;
  for (; !text.empty() && text[0] >= '0' && text[0] <= '9'; text.remove_prefix(1), unit /= 10)
    value += unit * (text[0] - '0');
  return value;
}

/// Removes a time zone such as "+01:00", "-0130" or "Z", and returns its offset in seconds.
std::optional<int> take_offset(std::string_view& text) {
  if (take_mark(text, 'Z')) return 0;
  const int sign = text.empty() || text[0] != '-' ? 1 : -1;
  if (!take_mark(text, '+') && !take_mark(text, '-')) return {};
  const auto hours = take_number(text, 2);
  take_mark(text, ':');
  const auto minutes = take_number(text, 2);
  if (!hours || !minutes) return {};
  return sign * (*hours * 3600 + *minutes * 60);
}

}  // namespace

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::optional<double> parse_timestamp(std::string_view text) {
  const std::array<std::pair<size_t, char>, 6> fields = {{{4, '-'}, {2, '-'}, {2, 'T'}, {2, ':'}, {2, ':'}, {2, '\0'}}};
  std::array<int, 6> values{};
  for (size_t i = 0; i < fields.size(); ++i) {
    const auto value = take_number(text, fields[i].first);
    if (!value || (fields[i].second && !take_mark(text, fields[i].second))) return {};
    values[i] = *value;
  }
  if (values[1] < 1 || values[1] > 12 || values[2] < 1 || values[2] > 31 || values[3] > 24 || values[4] > 59 ||
      values[5] > 60)
    return {};
  std::tm time{};
  time.tm_year = values[0] - 1900, time.tm_mon = values[1] - 1, time.tm_mday = values[2];
  time.tm_hour = values[3], time.tm_min = values[4], time.tm_sec = values[5];
  const double fraction = take_fraction(text);
  const auto offset = take_offset(text);
  if (!offset || !text.empty()) return {};
  return static_cast<double>(::timegm(&time)) + fraction - *offset;
}

std::string format_timestamp(double seconds) {
  const auto whole = static_cast<time_t>(std::floor(seconds));
  std::tm time{};
  ::gmtime_r(&whole, &time);
  std::array<char, 40> text{};
  const size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &time);
  const int micros = std::min(999'999, static_cast<int>((seconds - static_cast<double>(whole)) * 1e6));
  std::snprintf(text.data() + length, text.size() - length, ".%06d+00:00", micros);
  return text.data();
}

namespace {

std::string random_name() {
  std::array<unsigned char, 12> bytes{};
  EK_CHECK(RAND_bytes(bytes.data(), bytes.size()) == 1, kInternal, "no random bytes");
  return to_base64({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

Signer::Signer(Key key)
    : key_(std::move(key)), public_key_(to_base64(key_.public_key().pem())), instance_(random_name()) {}

SignedHeaders Signer::headers(double now) {
  const std::lock_guard lock(mutex_);
  if (std::abs(now - signed_at_) >= kSignatureLife) {
    const std::string timestamp = format_timestamp(now);
    last_ = {.public_key = public_key_,
             .timestamp = timestamp,
             .signature = to_base64(key_.sign(timestamp)),
             .instance = instance_};
    signed_at_ = now;
  }
  return last_;
}

Verifier::Verdict Verifier::check(const SignedHeaders& headers, const std::function<bool(const PublicKey&)>& wanted,
                                  double now) {
  const std::string all = concat(headers.public_key, "\n", headers.timestamp, "\n", headers.signature);
  if (all.size() > 8192) return {.key = {}, .refusal = "signed headers of more than 8192 bytes"};
  const auto in_window = [now](double time) { return now - time > kYoungest && now - time < kOldest; };
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = known_.find(all); known != known_.end() && in_window(known->second.time))
      if (wanted(known->second.key)) return {.key = known->second.key, .refusal = {}};
  }
  const auto time = parse_timestamp(headers.timestamp);
  if (!time) return {.key = {}, .refusal = concat("no time stamp: ", shown(headers.timestamp))};
  if (!in_window(*time))
    return {.key = {},
            .refusal = concat("a time stamp of ", shown(headers.timestamp), ", ", std::llround(now - *time),
                              " s old, allowed: -5 to 305")};
  const auto pem = from_base64(headers.public_key), signature = from_base64(headers.signature);
  if (!pem || !signature) return {.key = {}, .refusal = "headers that are no base64"};
  try {
    auto key = PublicKey::from_pem(*pem, "flwr-public-key");
    if (!wanted(key)) return {.key = {}, .refusal = concat("the key ", key.fingerprint(), " is not known here")};
    if (!key.signed_by(headers.timestamp, *signature)) return {.key = {}, .refusal = "a signature of another key"};
    const std::lock_guard lock(mutex_);
    if (known_.size() >= kMostKnown) std::erase_if(known_, [&](const auto& k) { return !in_window(k.second.time); });
    if (known_.size() >= kMostKnown) known_.clear();
    known_.insert_or_assign(all, Known{key, *time});
    return {.key = std::move(key), .refusal = {}};
  } catch (const Error& error) {
    return {.key = {}, .refusal = error.what()};
  }
}

}  // namespace evenkeel::flower
