#include "flower/http/certificates.h"

#include <openssl/err.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <memory>

#include "base/plain/error.h"
#include "base/plain/text.h"

namespace evenkeel::flower {
namespace {

/// Verifies a chain. OpenSSL reads the common name of a certificate whose alternative names are all addresses; here it
/// is not read.
int verify_chain(X509_STORE_CTX* chain, void*) {
  const X509* certificate = X509_STORE_CTX_get0_cert(chain);
  if (certificate && X509_get_ext_by_NID(certificate, NID_subject_alt_name, -1) >= 0)
    X509_VERIFY_PARAM_set_hostflags(X509_STORE_CTX_get0_param(chain), X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
  return X509_verify_cert(chain);
}

}  // namespace

void require_host(SSL_CTX* context, const std::string& host) {
  auto* wanted = SSL_CTX_get0_param(context);
  const bool known = X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str()) == 1 ||
                     X509_VERIFY_PARAM_set1_host(wanted, host.data(), host.size()) == 1;
  ERR_clear_error();
  EK_CHECK(known, kConfig, "no address of a server: ", shown(host));
  SSL_CTX_set_cert_verify_callback(context, verify_chain, nullptr);
}

void check_authority(const std::filesystem::path& file) {
  const std::unique_ptr<X509_STORE, void (*)(X509_STORE*)> store(X509_STORE_new(), &X509_STORE_free);
  const bool read = store && X509_STORE_load_locations(store.get(), file.c_str(), nullptr) == 1;
  ERR_clear_error();
  EK_CHECK(read, kConfig, file.string(), " (--ca) holds no certificate in PEM");
}

std::string refusal_of_certificate(long result) {
  switch (result) {
    case X509_V_OK:  // refused by cpp-httplib, which compares the address once more
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return "the server's certificate is not for this address";
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return "the server's certificate, or its authority's, has expired";
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return "the server's certificate, or its authority's, is not valid yet: are the clocks right?";
    default:
      return concat("the server's certificate is not of the given authority: ", X509_verify_cert_error_string(result));
  }
}

std::string fault_of_dates(const X509* certificate) {
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) return "has expired";
  return X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0 ? "is not valid yet" : "";
}

}  // namespace evenkeel::flower
