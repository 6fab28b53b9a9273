;;; In the source tree: guix build -f contrib/guix/mpstaged.scm; guix shell -f contrib/guix/mpstaged.scm
(use-modules (gnu packages)
             (guix build-system gnu)
             (guix gexp)
             (guix git-download)
             ((guix licenses) #:prefix license:)
             (guix packages)
             (guix utils))

(define top (dirname (dirname (current-source-directory))))

(package
  (name "mpstaged")
  (version "0.2.0")
  ;; The committed files of this tree. A channel takes the tarball, by url-fetch with its checksum.
  (source (local-file top "mpstaged-checkout" #:recursive? #t #:select? (git-predicate top)))
  (build-system gnu-build-system)
  (arguments
   (list #:configure-flags #~(list "--with-systemdsystemunitdir=no" "--with-cuda=no")
         #:tests? #f))                  ;they start MPI jobs, for an hour
  (native-inputs (map specification->package '("autoconf" "automake" "pkg-config" "protobuf-c")))
  (inputs (map specification->package
               '("jansson" "libjpeg-turbo" "libmicrohttpd" "libpng" "libuv" "oneapi-dnnl" "openmpi" "pcre2"
                 "protobuf-c" "random123" "utf8proc" "xxhash" "zlib")))
  (synopsis "Train neural networks as pipelines of processes")
  (description "mpstaged cuts a neural network into stages, each of which a process computes.  Trained weights have
the same bits for every cut, schedule and number of ranks.")
  (home-page "")
  (license license:bsd-3))
