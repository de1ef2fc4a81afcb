#include "flower/http/http_client.h"

#include <httplib.h>

#include <cerrno>
#include <cmath>
#include <csignal>

#include "base/plain/address.h"
#include "base/plain/files.h"
#include "base/plain/json.h"
#include "base/plain/os_error.h"
#include "base/plain/text.h"
#include "flower/http/certificates.h"
#include "flower/http/plain_client.h"

namespace evenkeel::flower {
namespace {

/// Reads a date such as "Sun, 06 Nov 1994 08:49:37 GMT".
std::optional<double> parse_date(const std::string& text) {
  std::tm time{};
  if (!::strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &time)) return {};
  return static_cast<double>(::timegm(&time));
}

/// Reads `code` and `detail` from the body of an error, if present.
void read_error(Answer& answer) {
  try {
    const Json json = parse_json(answer.body, "an error", kData, {.bytes = 65'536, .depth = 8, .values = 1000});
    if (!json.is_object()) return;
    if (const auto code = json.find("code"); code != json.end() && code->is_number_integer())
      answer.code = static_cast<int>(code->get<int64_t>());
    if (const auto detail = json.find("detail"); detail != json.end() && detail->is_string())
      answer.detail = shown(detail->get<std::string>(), 200);
  } catch (const Error&) {
    answer.detail = shown(answer.body, 100);
  }
}

std::string transport_word(httplib::Error error) {
  switch (error) {
    case httplib::Error::Connection:
      return "no server answers at this address";
    case httplib::Error::SSLConnection:
      return "no TLS connection: the server may be without TLS";
    case httplib::Error::SSLLoadingCerts:
      return "the authority's certificate cannot be read";
    default:
      return httplib::to_string(error);
  }
}

/// Returns true if the server ended the connection. Canceled says that it did while the body was sent.
bool has_ended(httplib::Error error) {
  return error == httplib::Error::Read || error == httplib::Error::Write || error == httplib::Error::Canceled;
}

}  // namespace

std::string Endpoint::text() const { return concat(ca_file ? "https://" : "http://", address_text(host, port)); }

struct HttpClient::Parts {
  Parts(const Endpoint& server, double timeout_s, size_t most_bytes) : most(most_bytes), is_plain(!server.ca_file) {
    const std::string host(without_zone(server.host));  // a certificate is for the address, whatever the interface
    if (server.ca_file)
      client = std::make_unique<httplib::SSLClient>(host, server.port);
    else
      client = std::make_unique<PlainClient>(host, server.port);
    if (host != server.host) client->set_hostname_addr_map({{host, server.host}});
    std::signal(SIGPIPE, SIG_IGN);  // otherwise a connection closed by the server would end the process
    const auto whole = static_cast<time_t>(std::ceil(timeout_s));
    client->set_keep_alive(true);
    client->set_tcp_nodelay(true);
    client->set_connection_timeout(whole);
    client->set_read_timeout(whole);
    client->set_write_timeout(whole);
    client->set_decompress(false);  // we do not ask for compression, and decompressed data could be large
    EK_CHECK(client->is_valid(), kConfig, "no address of a server: ", shown(server.text()));
    if (server.ca_file) verify(server);
  }

  /// Makes connections verify the server.
  void verify(const Endpoint& server) {
    check_authority(*server.ca_file);
    client->set_ca_cert_path(server.ca_file->string());
    require_host(dynamic_cast<httplib::SSLClient&>(*client).ssl_context(), std::string(without_zone(server.host)));
  }

  Answer send(httplib::Request& request) {
    Answer answer;
    bool too_large = false;
    request.content_receiver = [&](const char* data, size_t length, uint64_t, uint64_t total) {
      if (answer.body.empty() && total > 0) answer.body.reserve(std::min<uint64_t>(total, most));
      too_large = answer.body.size() + length > most;
      if (too_large) return false;
      answer.body.append(data, length);
      return true;
    };
    httplib::Response response;
    httplib::Error error = httplib::Error::Success;
    errno = 0;
    if (!client->send(request, response, error)) return unanswered(error, errno, too_large);
    if (is_damaged(response, answer.body)) return {.detail = "an answer that was damaged on the way"};
    answer.status = response.status;
    answer.date = parse_date(response.get_header_value("Date"));
    if (answer.ok())
      answer.detail = shown(response.get_header_value(std::string(kReasonHeader)), 300);
    else
      read_error(answer);
    return answer;
  }

  static bool is_damaged(const httplib::Response& response, std::string_view body) {
    const auto digest = response.get_header_value(std::string(kDigestHeader));
    return !digest.empty() && digest != sha256(body);
  }

  /// Returns why no answer arrived. \param reason  errno after the call
  Answer unanswered(httplib::Error error, int reason, bool too_large) const {
    if (reason == EMFILE || reason == ENFILE) return {.detail = os_error_text(reason)};
    if (too_large) return {.detail = "an answer larger than allowed"};
    const auto* tls = dynamic_cast<const httplib::SSLClient*>(client.get());
    if (tls && error == httplib::Error::SSLServerVerification)
      return {.detail = refusal_of_certificate(tls->get_openssl_verify_result())};
    if (!has_ended(error)) return {.detail = transport_word(error)};
    const auto* plain = dynamic_cast<const PlainClient*>(client.get());
    if (plain && plain->server_speaks_tls())
      return {.detail = "the server speaks TLS: give --ca FILE", .needs_tls = true};
    return {.detail = concat("the connection ended before the answer",
                             plain ? "; a server with TLS needs --ca FILE here" : "")};
  }

  std::unique_ptr<httplib::ClientImpl> client;
  size_t most;
  bool is_plain;  // without TLS
};

HttpClient::HttpClient(const Endpoint& server, double timeout_s, size_t most)
    : parts_(std::make_unique<Parts>(server, timeout_s, most)) {}
HttpClient::~HttpClient() = default;
HttpClient::HttpClient(HttpClient&&) noexcept = default;

Answer HttpClient::post(std::string_view path, const SignedHeaders& signature, std::string_view head,
                        std::span<const std::string_view> pieces) {
  httplib::Request request;
  request.method = "POST";
  request.path = path;
  request.headers = {{"content-type", "application/protobuf"},        {"accept", "application/protobuf"},
                     {"flwr-public-key", signature.public_key},       {"flwr-timestamp", signature.timestamp},
                     {"flwr-signature", signature.signature},         {"flwr-package-name", "evenkeel"},
                     {"flwr-package-version", std::string(version())}};
  if (!signature.instance.empty()) request.headers.emplace(kInstanceHeader, signature.instance);
  if (parts_->is_plain && pieces.empty()) request.headers.emplace(kDigestHeader, sha256(head));
  request.content_length_ = head.size();
  for (const auto piece : pieces) request.content_length_ += piece.size();
  request.content_provider_ = [=](size_t offset, size_t, httplib::DataSink& sink) {
    size_t begin = 0;
    const auto write = [&](std::string_view piece) {
      const size_t skip = std::min(piece.size(), offset - std::min(offset, begin));
      begin += piece.size();
      return skip == piece.size() || sink.write(piece.data() + skip, piece.size() - skip);
    };
    if (!write(head)) return false;
    return std::all_of(pieces.begin(), pieces.end(), write);
  };
  return parts_->send(request);
}

Answer HttpClient::get(std::string_view path) {
  httplib::Request request;
  request.method = "GET";
  request.path = path;
  return parts_->send(request);
}

}  // namespace evenkeel::flower
