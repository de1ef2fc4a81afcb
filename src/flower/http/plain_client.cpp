#include "flower/http/plain_client.h"

#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

namespace evenkeel::flower {
namespace {

constexpr size_t kRecordHead = 3;  // type, and two bytes of the version
constexpr time_t kPatience = 3;    // seconds for a step of the handshake

void keep(std::string& first, const char* data, size_t size) {
  first.append(data, std::min(size, kRecordHead - std::min(kRecordHead, first.size())));
}

/// A stream that remembers the first bytes of the answer. When a write fails, because the server has closed the
/// connection, it reads what the server sent before.
class WatchedStream : public httplib::Stream {
 public:
  WatchedStream(httplib::Stream& stream, std::string& first) : stream_(stream), first_(first) {}
  bool is_readable() const override { return stream_.is_readable(); }
  bool is_writable() const override { return stream_.is_writable(); }
  ssize_t read(char* data, size_t size) override {
    const ssize_t count = stream_.read(data, size);
    if (count > 0) keep(first_, data, static_cast<size_t>(count));
    return count;
  }
  ssize_t write(const char* data, size_t size) override {
    const ssize_t count = stream_.write(data, size);
    if (count < 0) read_rest();
    return count;
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override { stream_.get_remote_ip_and_port(ip, port); }
  void get_local_ip_and_port(std::string& ip, int& port) const override { stream_.get_local_ip_and_port(ip, port); }
  socket_t socket() const override { return stream_.socket(); }

 private:
  void read_rest() {
    std::array<char, kRecordHead> bytes{};
    const ssize_t count = ::recv(socket(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count > 0) keep(first_, bytes.data(), static_cast<size_t>(count));
  }

  httplib::Stream& stream_;
  std::string& first_;
};

/// Returns the first message of a TLS handshake.
std::string client_hello() {
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  const std::unique_ptr<SSL, void (*)(SSL*)> ssl(context ? SSL_new(context.get()) : nullptr, &SSL_free);
  BIO* in = BIO_new(BIO_s_mem());
  BIO* out = BIO_new(BIO_s_mem());
  if (!ssl || !in || !out) return BIO_free(in), BIO_free(out), std::string();
  SSL_set_bio(ssl.get(), in, out);  // owns both
  SSL_connect(ssl.get());           // writes its message and asks for the answer, which the empty input lacks
  std::string message(BIO_pending(out), '\0');
  BIO_read(out, message.data(), static_cast<int>(message.size()));
  return message;
}

/// Sends the beginning of a handshake and reads the beginning of the answer.
class HandshakeProbe : public httplib::ClientImpl {
 public:
  using ClientImpl::ClientImpl;
  bool speaks_tls() {
    set_connection_timeout(kPatience);
    Get("/");
    return is_tls_record(answer_);
  }

 private:
  bool process_socket(const Socket& socket, std::function<bool(httplib::Stream&)>) override {
    const auto hello = client_hello();
    ::send(socket.sock, hello.data(), hello.size(), MSG_NOSIGNAL);
    std::array<char, kRecordHead> bytes{};
    pollfd ready{.fd = socket.sock, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, static_cast<int>(kPatience) * 1000) <= 0) return false;
    const ssize_t count = ::recv(socket.sock, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count > 0) keep(answer_, bytes.data(), static_cast<size_t>(count));
    return false;
  }

  std::string answer_;
};

}  // namespace

bool is_tls_record(std::string_view bytes) {
  constexpr char kAlert = 21, kHandshake = 22, kMajorVersion = 3;
  return bytes.size() >= 2 && (bytes[0] == kAlert || bytes[0] == kHandshake) && bytes[1] == kMajorVersion;
}

bool PlainClient::server_speaks_tls() const {
  if (is_tls_record(first_bytes_)) return true;
  HandshakeProbe probe(host_, port_);
  probe.set_hostname_addr_map(addr_map_);
  return probe.speaks_tls();
}

bool PlainClient::process_socket(const Socket& socket, std::function<bool(httplib::Stream&)> callback) {
  first_bytes_.clear();
  return httplib::detail::process_client_socket(socket.sock, read_timeout_sec_, read_timeout_usec_, write_timeout_sec_,
                                                write_timeout_usec_, [&](httplib::Stream& stream) {
                                                  WatchedStream watched(stream, first_bytes_);
                                                  return callback(watched);
                                                });
}

}  // namespace evenkeel::flower
